# SPDX-License-Identifier: Apache-2.0

import unittest

from cinder_dmclone.host.dm import status
from cinder_dmclone.units import Regions
from cinder_dmclone.units import Sectors

CLONE = ('8 14/1024 8 65000/65536 32 1 no_discard_passdown 4 '
         'hydration_threshold 64 hydration_batch_size 32 rw')


class CloneStatusTest(unittest.TestCase):

    def test_parse(self) -> None:
        self.assertEqual(
            status.CloneStatus(
                mode=status.Mode.RW,
                region_size=Sectors(8), hydrated=Regions(65000),
                total=Regions(65536), hydrating=Regions(32),
                features=frozenset(['no_discard_passdown']),
                core={'hydration_threshold': 64, 'hydration_batch_size': 32}),
            status.CloneStatus.parse(CLONE))

    def test_complete_needs_every_region_and_write_mode(self) -> None:
        full = CLONE.replace('65000/', '65536/')
        self.assertTrue(status.CloneStatus.parse(full).complete)
        self.assertFalse(status.CloneStatus.parse(CLONE).complete)
        for mode in ('ro', 'fail'):
            self.assertFalse(status.CloneStatus.parse(
                full.replace(' rw', f' {mode}')).complete)

    def test_a_failed_clone_is_never_complete(self) -> None:
        for text in ('Fail', 'Error'):
            parsed = status.CloneStatus.parse(text)
            self.assertIs(status.Mode.FAIL, parsed.mode)
            self.assertFalse(parsed.complete)

    def test_hydration(self) -> None:
        self.assertTrue(status.CloneStatus.parse(CLONE).hydration)
        self.assertFalse(status.CloneStatus.parse(CLONE.replace(
            '1 no_discard_passdown',
            '2 no_hydration no_discard_passdown')).hydration)

    def test_nonsense_is_refused(self) -> None:
        for text in ('', '8 14/1024', '0 2048', CLONE[:-3]):
            with self.assertRaises(ValueError):
                status.CloneStatus.parse(text)


class MultipathStatusTest(unittest.TestCase):

    def test_a_working_path(self) -> None:
        parsed = status.MultipathStatus.parse(
            '2 0 0 0 1 1 A 0 1 0 8:16 A 0 ')
        self.assertEqual({'8:16': True}, parsed.paths)
        self.assertTrue(parsed.usable)

    def test_a_failed_path(self) -> None:
        parsed = status.MultipathStatus.parse(
            '2 0 0 0 1 1 E 0 1 2 8:16 F 3 0 0 ')
        self.assertEqual({'8:16': False}, parsed.paths)
        self.assertFalse(parsed.usable)

    def test_no_path(self) -> None:
        parsed = status.MultipathStatus.parse('2 1 0 0 0 0 ')
        self.assertEqual({}, parsed.paths)
        self.assertFalse(parsed.usable)

    def test_nonsense_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            status.MultipathStatus.parse('2 0 0 0 1 1 A 0 1 0')
