# SPDX-License-Identifier: Apache-2.0
"""The secret of a node, whoever is the first to need it."""

from __future__ import annotations

import os
import stat
import unittest
from unittest import mock

from cinder.common import config

from cinder_dmclone import wiring
from tests.unit import base

STRANGER = 4711


class KeyTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.state = self.folder()
        config.CONF.set_override('state_path', self.state)
        self.addCleanup(config.CONF.clear_override, 'state_path')

    def made(self) -> os.stat_result:
        name, = os.listdir(self.state)
        return os.stat(os.path.join(self.state, name))

    def test_it_is_made_once_and_for_one_user(self) -> None:
        key = wiring._key()
        self.assertEqual(32, len(key))
        self.assertEqual(key, wiring._key())
        self.assertEqual(0o600, stat.S_IMODE(self.made().st_mode))

    def test_a_power_cut_does_not_take_it(self) -> None:
        """What is lent is lent with a password that is made of it."""
        named: list[tuple[int, bool]] = []

        def fsync(handle: int) -> None:
            named.append((os.fstat(handle).st_ino, os.path.exists(
                os.path.join(self.state, wiring.KEY_FILE))))

        with mock.patch.object(os, 'fsync', fsync):
            wiring._key()
        self.assertEqual([(self.made().st_ino, False),
                          (os.stat(self.state).st_ino, True)], named)

    @unittest.skipIf(os.geteuid(), 'root only')
    def test_of_root_it_is_the_services(self) -> None:
        os.chown(self.state, STRANGER, STRANGER)
        wiring._key()
        self.assertEqual(STRANGER, self.made().st_uid)
