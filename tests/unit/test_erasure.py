# SPDX-License-Identifier: Apache-2.0
"""What is deleted is overwritten as the backend's section says."""

from __future__ import annotations

import typing
from unittest import mock

from cinder import exception
from cinder.volume import configuration
from cinder.volume import driver
from oslo_config import cfg

from cinder_dmclone.host import erasure
from cinder_dmclone.privileged import block
from cinder_dmclone import units
from tests.unit import base

SECTION = 'erasure'
MIB = 1 << 20
PATH = '/dev/group/lv'


class ErasureTest(base.TestCase):

    def erased(self, mib: int,
               goes_on: typing.Callable[[], bool] = lambda: True,
               **options: typing.Any) -> list[tuple[typing.Any, ...]]:
        """How an LV of so many MiB is overwritten."""
        config = configuration.Configuration(driver.volume_opts,
                                             config_group=SECTION)
        for name, value in options.items():
            cfg.CONF.set_override(name, value, group=SECTION)
            self.addCleanup(cfg.CONF.clear_override, name, group=SECTION)
        with mock.patch.object(erasure, 'block',
                               mock.Mock(PRIORITY=block.PRIORITY)) as made:
            erasure.Eraser.of(config)(PATH, units.Bytes(mib * MIB), goes_on)
        if not made.mock_calls:
            return []
        *zeros, flush = made.mock_calls
        self.assertEqual(mock.call.flush((PATH,)), flush)
        self.assertEqual([], [call for call in zeros if call[0] != 'zero'])
        return [call.args for call in zeros]

    def test_the_whole_of_it_by_default(self) -> None:
        """In portions; the last one is what is left."""
        self.assertEqual([(PATH, 0, 256 * MIB, ''),
                          (PATH, 256 * MIB, 256 * MIB, ''),
                          (PATH, 512 * MIB, 4 * MIB, '')], self.erased(516))

    def test_as_much_and_as_urgently_as_wanted(self) -> None:
        self.assertEqual([(PATH, 0, 2 * MIB, '-c3')], self.erased(
            3, volume_clear_size=2, volume_clear_ionice='-c3'))

    def test_no_more_than_there_is(self) -> None:
        self.assertEqual([(PATH, 0, 3 * MIB, '')],
                         self.erased(3, volume_clear_size=4))

    def test_until_it_is_stopped(self) -> None:
        answers = iter((True, False))
        self.assertEqual([(PATH, 0, 256 * MIB, '')],
                         self.erased(516, lambda: next(answers)))

    def test_not_at_all(self) -> None:
        self.assertEqual([], self.erased(3, volume_clear='none'))

    def test_what_ionice_would_not_take(self) -> None:
        self.assertRaises(exception.InvalidConfigurationValue, self.erased,
                          3, volume_clear_ionice='3')
