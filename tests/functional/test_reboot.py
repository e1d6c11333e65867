# SPDX-License-Identifier: Apache-2.0
"""Nodes go away during hydration and come back."""
from __future__ import annotations

from tests.functional import base

BLOCKS = base.GIB // 4096


class RebootTest(base.FunctionalTest):
    """What was flushed is there afterwards, and the hydration ends."""

    def hydrating(self) -> tuple[base.Attachment, base.Image]:
        """A volume of node 1 that hydrates slowly on node 2."""
        volume, image = self.filled(self.node1)
        at = self.attach(volume, self.node2)
        self.brake(volume, self.node1, self.node2)
        image.write(at, 9, 20, BLOCKS // 21)
        self.assert_hydrating(volume, self.node2)
        return at, image

    def finished(self, at: base.Attachment, image: base.Image) -> None:
        """Everything runs again: it has to end well."""
        self.wait(f'{at.path}', lambda: self.node2.run(
            ['test', '-e', at.path], check=False).code == 0)
        image.write(at, 13, 20, BLOCKS // 22)
        self.release(at.volume, self.node1, self.node2)
        self.wait_complete(at.volume)
        self.assert_holds(image, at)

    def test_borrower_reboots(self) -> None:
        at, image = self.hydrating()
        self.node2.reboot()
        self.start_services(self.node2)
        self.finished(at, image)

    def test_borrower_loses_power(self) -> None:
        at, image = self.hydrating()
        self.node2.power_cut()
        # Whatever looks at it meanwhile, the lender keeps its copy.
        self.node1.volume.kill()
        self.node2.start()
        self.node2.wait_booted()
        self.start_services(self.node1, self.node2)
        self.finished(at, image)

    def test_lender_reboots(self) -> None:
        at, image = self.hydrating()
        self.node1.reboot()
        self.start_services(self.node1)
        self.finished(at, image)

    def test_both_lose_power(self) -> None:
        at, image = self.hydrating()
        for node in (self.node1, self.node2):
            node.power_cut()
        for node in (self.node1, self.node2):
            node.start()
        for node in (self.node1, self.node2):
            node.wait_booted()
        self.start_services(self.node1, self.node2)
        self.finished(at, image)
