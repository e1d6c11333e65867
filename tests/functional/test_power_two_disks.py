# SPDX-License-Identifier: Apache-2.0
"""Nodes lose power whose clones have their metadata on a second disk.

Each disk has a cache of its own: what was written later may be on the one and
what was written earlier not on the other. DMCLONE_SEED and DMCLONE_ROUNDS are
those of test_power.
"""
from __future__ import annotations

from lab import look
from lab.node import Node
from tests.functional import environment
from tests.functional import test_power


class TwoDisks(test_power.Rounds):

    metadata = True

    def setUp(self) -> None:
        super().setUp()
        if not self.node1.meta_disk:
            self.skipTest('the nodes of this lab have one disk')


@environment.only_long
class TwoDisksTest(TwoDisks):
    """dm-clone flushes the one before it writes the other; so do we."""

    def test_what_a_commit_relies_on_is_flushed(self) -> None:
        server, missing = self.cut_at_commit()
        self.assertEqual([], missing)
        self.assertEqual([], server.findings(settled=True)[:20])
        self.rest_of(server)
        self.assertEqual([], self.metadata_lvs(self.node2))

    def test_random_cuts(self) -> None:
        self.rounds(-(-test_power.ROUNDS // 4))

    def missing(self, lender: str, borrower: str) -> list[str]:
        # While nothing works there: soon after that it may have hydrated.
        self.assertTrue(self.metadata_lvs(self.node2))
        return super().missing(lender, borrower)

    @staticmethod
    def metadata_lvs(node: Node) -> list[str]:
        """What is on the second disk."""
        return node.run(['lvs', '--devices', node.meta_disk, '--noheadings',
                         '-o', 'lv_name', look.META_GROUP]).stdout.split()


@environment.only_long
class HalfForgetfulTest(TwoDisks):
    """With a driver that flushes only the first disk it is not there."""

    driver = 'dmclone_faulty.HalfForgetfulDriver'

    def _finish(self) -> None:
        """Nothing: its lab is of no more use."""

    def test_what_a_commit_relies_on_is_lost(self) -> None:
        _, missing = self.cut_at_commit()
        self.assertNotEqual([], missing)
        print(f'missing: {missing}', flush=True)
