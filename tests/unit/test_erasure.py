# SPDX-License-Identifier: Apache-2.0
"""What is deleted is overwritten as the backend's section says."""

from __future__ import annotations

import typing
from unittest import mock

from cinder.volume import configuration
from cinder.volume import driver
from cinder.volume import volume_utils
from oslo_config import cfg

from cinder_dmclone.privileged import block
from cinder_dmclone import units
from cinder_dmclone import wiring
from tests.unit import base

SECTION = 'erasure'


class ErasureTest(base.TestCase):

    def erased(self, **options: typing.Any) -> mock.Mock:
        """How an LV of 3 MiB is overwritten."""
        config = configuration.Configuration(driver.volume_opts,
                                             config_group=SECTION)
        for name, value in options.items():
            cfg.CONF.set_override(name, value, group=SECTION)
            self.addCleanup(cfg.CONF.clear_override, name, group=SECTION)
        with mock.patch.object(block, 'ready'), mock.patch.object(
                volume_utils, 'copy_volume') as copied:
            wiring._eraser(config)('/dev/group/lv', units.Bytes(3 << 20))
        return copied

    def test_the_whole_of_it_by_default(self) -> None:
        copied = self.erased()
        self.assertEqual(('/dev/zero', '/dev/group/lv', 3),
                         copied.call_args.args[:3])

    def test_as_much_and_as_urgently_as_wanted(self) -> None:
        copied = self.erased(volume_clear_size=2, volume_clear_ionice='-c3')
        self.assertEqual(2, copied.call_args.args[2])
        self.assertEqual('-c3', copied.call_args.kwargs['ionice'])

    def test_not_at_all(self) -> None:
        self.erased(volume_clear='none').assert_not_called()
