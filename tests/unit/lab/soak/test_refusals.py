# SPDX-License-Identifier: Apache-2.0
"""A request that is wrong in one thing has to be refused, and no other."""
from __future__ import annotations

import ddt

from lab.soak import refusals
from lab.soak.model import Model, Step
from tests.unit.lab.soak import base


@ddt.ddt
class RefusalsTest(base.SmallTestCase):
    """Two snapshots, between which a volume was extended; one in use."""

    def setUp(self) -> None:
        super().setUp()
        self.model = Model()
        for step in (Step('create', 'v1', node=1, gib=1),
                     Step('attach', 'v1', node=1),
                     Step('detach', 'v1'),
                     Step('snapshot', 's2', 'v1'),
                     Step('extend', 'v1', gib=2),
                     Step('snapshot', 's3', 'v1'),
                     Step('born', 'v4', 's2', gib=1),
                     Step('attach', 'v4', node=2)):
            self.assertEqual('', refusals.reason(step, self.model), step)
            self.model.apply(step)

    @ddt.data(
        (Step('delete', 'v1'), 'it has snapshots'),
        (Step('delete', 'v4'), 'a server has it'),
        (Step('attach', 'v4', node=2), 'another server has it'),
        (Step('attach', 'v1', node=2), ''),
        (Step('extend', 'v1', gib=2), 'it is not larger then'),
        (Step('extend', 'v1', gib=3), ''),
        (Step('clone', 'v5', 'v1', gib=1), 'its source is larger'),
        (Step('clone', 'v5', 'v1', gib=2), ''),
        (Step('clone', 'v5', 'v4', gib=1), ''),
        (Step('born', 'v5', 's3', gib=1), 'its source is larger'),
        (Step('born', 'v5', 's2', gib=1), ''),
        (Step('revert', 'v1', 's2'), 'a later snapshot is there'),
        (Step('revert', 'v1', 's3'), ''),
        (Step('unsnapshot', 's2'), ''),
        (Step('migrate', 'v4', node=1), ''),
        (Step('wait'), ''))
    @ddt.unpack
    def test_reasons(self, step: Step, reason: str) -> None:
        self.assertEqual(reason, refusals.reason(step, self.model))

    def test_a_revert_of_what_was_extended(self) -> None:
        self.model.apply(Step('unsnapshot', 's3'))
        self.assertEqual('it was extended since', refusals.reason(
            Step('revert', 'v1', 's2'), self.model))

    def test_a_revert_of_what_a_server_has(self) -> None:
        self.model.apply(Step('attach', 'v1', node=2))
        self.assertEqual('a server has it', refusals.reason(
            Step('revert', 'v1', 's3'), self.model))

    def test_without_snapshots_it_may_be_deleted(self) -> None:
        for name in ('s2', 's3'):
            self.model.apply(Step('unsnapshot', name))
        self.assertEqual('', refusals.reason(Step('delete', 'v1'),
                                             self.model))

    @ddt.data(
        ('there are 3 copies of it already, as many as dmclone_max_copies '
         'allows: wait until the hydration has ended (7 % have arrived)',
         True),
        ('it was reverted 2 times and has yet to hydrate; more copies of it '
         'than dmclone_max_copies there may not be', True),
        ('its status is backing-up: try again when that has ended', True),
        ('there is no room for it', False),
        ('Device x is in use.', False))
    @ddt.unpack
    def test_what_passes_by_itself(self, text: str, passes: bool) -> None:
        self.assertEqual(passes, refusals.passes(text))
