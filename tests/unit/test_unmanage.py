# SPDX-License-Identifier: Apache-2.0
"""A volume that Cinder would forget is kept."""

from __future__ import annotations

import types

from cinder_dmclone import driver
from cinder_dmclone import exceptions
from tests.unit import base

VOLUME = '70000000-0000-4000-8000-000000000001'


class UnmanageTest(base.TestCase):

    def test_it_is_refused(self) -> None:
        self.assertRaises(
            exceptions.UnmanageRefused,
            driver.DMCloneVolumeDriver.unmanage, None,
            types.SimpleNamespace(id=VOLUME))
