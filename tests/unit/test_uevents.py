# SPDX-License-Identifier: Apache-2.0
"""What the kernel says when a path fails."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone.host import uevents
from tests.unit import base

LV = 'f4fbf264-82bc-4f31-b7ad-612e376862e8'
# As Linux 6.1 sends it.
EVENT = '\0'.join((
    'change@/devices/virtual/block/dm-13', 'ACTION=change',
    'DEVPATH=/devices/virtual/block/dm-13', 'SUBSYSTEM=block',
    'DM_TARGET=multipath', 'DM_ACTION=PATH_FAILED', 'DM_SEQNUM=1',
    'DM_PATH=254:12', 'DM_NR_VALID_PATHS=0', f'DM_NAME=dmclone-hold-{LV}',
    f'DM_UUID=CINDER-DMCLONE-hold-{LV}', 'SEQNUM=1866', ''))


class UeventTest(base.TestCase):

    def test_a_path_of_ours(self) -> None:
        self.assertEqual(LV, uevents.failed_path(EVENT.encode()))

    def test_other_events(self) -> None:
        for event in (EVENT.replace('FAILED', 'REINSTATED'),
                      EVENT.replace('dmclone-hold', 'mpatha'), 'add@/x\0',
                      ''):
            self.assertIsNone(uevents.failed_path(event.encode()))
        self.assertIsNone(uevents.failed_path(b'\xff\0=\0'))

    def test_an_event_that_cannot_be_told_does_not_end_the_others(
            self) -> None:
        """As when no thread can be started for it."""
        found, told = mock.Mock(), mock.Mock(side_effect=[RuntimeError, None])
        event = (EVENT.encode(), (0, uevents._KERNEL))
        found.recvfrom.side_effect = [event, event, KeyboardInterrupt]
        with self.assertRaises(KeyboardInterrupt):
            uevents._run(found, told, mock.Mock())
        self.assertEqual([mock.call(LV)] * 2, told.mock_calls)

    def test_events_that_are_lost_do_not_end_the_others(self) -> None:
        found = mock.Mock()
        found.recvfrom.side_effect = [OSError, OSError, KeyboardInterrupt]
        lost = mock.Mock(side_effect=[RuntimeError, None])
        with self.assertRaises(KeyboardInterrupt):
            uevents._run(found, mock.Mock(), lost)
        self.assertEqual(2, lost.call_count)
