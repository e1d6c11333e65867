# SPDX-License-Identifier: Apache-2.0
"""Which connectors are refused, whatever they are for."""

from __future__ import annotations

import typing

from cinder import exception
import ddt

from cinder_dmclone import driver
from tests.unit import base

INITIATOR = 'iqn.2026-01.lab.dmclone:node1'


def validate(connector: dict[str, typing.Any]) -> None:
    driver.DMCloneVolumeDriver.validate_connector(
        typing.cast(driver.DMCloneVolumeDriver, None), connector)


@ddt.ddt
class ConnectorsTest(base.TestCase):

    @ddt.data(
        ('host or initiator', {}),
        ('host or initiator', {'platform': 'x86_64'}),
        ('host or initiator', {'host': '', 'initiator': None}),
        ('host as a text', {'host': {'name': 'node2'}}),
        ('host as a text', {'host': 7, 'initiator': INITIATOR}),
        ('host as a text', {'host': 'node1\n2026-01-01 ERROR forged'}),
        ('host as a text', {'host': 256 * 'n', 'initiator': INITIATOR}),
        ('initiator', {'host': 'glance1', 'initiator': 5}),
        ('initiator', {'host': 'glance1',
                       'initiator': 'iqn.2026-01.org.lab:a/../../b'}),
        ('initiator', {'host': 'node1', 'initiator': [INITIATOR]}))
    @ddt.unpack
    def test_one_that_names_nobody(
            self, word: str, connector: dict[str, typing.Any]) -> None:
        with self.assertRaises(
                exception.InvalidConnectorException) as caught:
            validate(connector)
        self.assertIn(word, str(caught.exception))

    @ddt.data(
        {'host': 'node1'}, {'initiator': INITIATOR},
        {'host': 'node1', 'initiator': INITIATOR, 'ip': 7, 'wwpns': [''],
         'nested': {'x': [1, {}]}, 'multipath': 'perhaps'})
    def test_one_that_names_somebody(
            self, connector: dict[str, typing.Any]) -> None:
        validate(connector)
