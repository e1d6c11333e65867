# SPDX-License-Identifier: Apache-2.0
"""A node with nothing in flight costs nothing."""
from __future__ import annotations

from lab import account
from tests.functional import base

# Longer than the longest pause between two looks of the reconciler.
WINDOW = 70.0
# So often it is tried to see one with nothing in it.
WINDOWS = 4
# So long nothing must have happened before it is called quiet: longer than
# STATS_SECONDS (tests/functional/environment.py).
QUIET = 20.0


class IdleTest(base.FunctionalTest):
    """Counts statements at the server and programs in the kernels."""

    def test_idle_nodes_ask_and_fork_nothing(self) -> None:
        # Otherwise this test could not fail: work is seen.
        work = account.cost(self.lab, self.work)
        self.assertLess(0, work.programs['lvm'], work)
        self.assertLess(0, work.statements.other, work)
        # On a slow machine a last look may come after a quiet while.
        for _ in range(WINDOWS):
            account.wait_quiet(self.lab, QUIET)
            cost = account.idle(self.lab, WINDOW)
            if cost.nothing:
                break
        else:
            self.fail(f'never: {cost}')

    def work(self) -> None:
        """Leave volumes in use on each node, and one that has moved."""
        self.volume(self.node1)
        for node in self.lab.nodes:
            self.attach(self.volume(node), node)
        # A volume that has moved is at rest as any other.
        moved = self.volume(self.node1)
        at = self.attach(moved, self.node2)
        self.wait_complete(moved)
        self.detach(at)
