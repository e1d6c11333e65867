# SPDX-License-Identifier: Apache-2.0
"""What ``cinder-dmclone status`` says of an LV."""

from __future__ import annotations

from cinder_dmclone.cli import status
from cinder_dmclone.host.dm import status as dm_status
from cinder_dmclone.location import LvUuid
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from tests.unit import base

LV = LvUuid('70000000-0000-4000-8000-000000000001')
CLONE = '8 8/1024 32 16384/65536 0 1 no_discard_passdown 0 '


class DescribeTest(base.TestCase):

    def describe(self, clone: str) -> str:
        return status.describe(state.Stack(
            LV, clone=dm_status.CloneStatus.parse(clone),
            source=dm_status.MultipathStatus({'8:0': True})))

    def test_a_clone_that_copies(self) -> None:
        self.assertEqual('no tags, hydrated 25 % (path up)',
                         self.describe(CLONE + 'rw'))

    def test_a_clone_that_cannot_write_its_metadata(self) -> None:
        self.assertEqual('no tags, ERROR: its clone is read-only, '
                         'hydrated 25 % (path up)',
                         self.describe(CLONE + 'ro'))

    def test_a_snapshot(self) -> None:
        tags = ['dmclone.1.own/3/v', 'dmclone.1.snap/1/s/v/512']
        past = 'dmclone.1.past/4/v/b#x/y'
        for found, text in (
                (tags, 'volume v generation 3, snapshot s of volume v'),
                ([*tags, past], 'was volume v, which went on to b@x/y, '
                                'snapshot s of volume v')):
            self.assertEqual(text, status.describe(state.Stack(
                LV, tags=lv_tags.Tags.parse(found))))

    def test_a_clone_that_failed(self) -> None:
        self.assertEqual('no tags, ERROR: its clone is failed',
                         self.describe('Fail'))
