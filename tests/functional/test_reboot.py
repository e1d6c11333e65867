# SPDX-License-Identifier: Apache-2.0
"""Nodes go away during hydration and come back."""
from __future__ import annotations

import concurrent.futures
import dataclasses

from lab.attached import AttachedVolume
from lab.lab import LabNode
from tests.functional import base
from tests.functional import environment

BLOCKS = base.GIB // 4096


@dataclasses.dataclass(frozen=True)
class Move:
    """A volume that hydrates very slowly, and what it holds."""

    at: AttachedVolume
    image: base.Image
    lender: LabNode


class RebootTest(base.FunctionalTest):
    """Each node lends one volume and borrows another.

    What was flushed is there afterwards, and the hydrations end.
    """

    def setUp(self) -> None:
        super().setUp()
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.addCleanup(self.pool.shutdown)
        nodes = self.node1, self.node2
        self.moves = list(self.pool.map(self.move, nodes, reversed(nodes)))

    def move(self, lender: LabNode, borrower: LabNode) -> Move:
        """Begin to move a volume and write to it meanwhile."""
        volume, image = self.filled(lender)
        at = self.attach_slowly(volume, lender, borrower, crawl=True)
        image.write(at, 9, 20, BLOCKS // 21)
        self.assert_hydrating(at)
        return Move(at, image, lender)

    def finish(self, move: Move) -> None:
        """Everything runs again: it has to end well."""
        at = move.at
        self.wait(f'{at.path}', lambda: at.node.run(
            ['test', '-e', at.path], check=False).code == 0)
        move.image.write(at, 13, 20, BLOCKS // 22)
        self.release(at, move.lender)
        self.wait_complete(at.volume)
        self.assert_holds(move.image, at)

    def test_a_node_reboots(self) -> None:
        self.node1.reboot()
        self.start_services(self.node1)
        list(self.pool.map(self.finish, self.moves))

    @environment.only_long
    def test_a_node_loses_power(self) -> None:
        self.node2.power_cut()
        # Whatever looks at them meanwhile, lent copies are kept.
        self.node1.volume.kill()
        self.start_services(self.node1)
        self.node2.start()
        self.node2.wait_booted()
        self.start_services(self.node2)
        list(self.pool.map(self.finish, self.moves))

    @environment.only_long
    def test_both_nodes_lose_power(self) -> None:
        """On disks that keep everything; test_power has those that do not."""
        for node in (self.node1, self.node2):
            node.power_cut()
        for node in (self.node1, self.node2):
            node.start()
        for node in (self.node1, self.node2):
            node.wait_booted()
        self.start_services(self.node1, self.node2)
        list(self.pool.map(self.finish, self.moves))
