# SPDX-License-Identifier: Apache-2.0
"""What tests do to cinder-volume and to a hydration (see lab/faulty.py)."""
from __future__ import annotations

import time
import typing
from collections.abc import Callable

import testtools

from lab import look
from lab.attached import AttachedVolume
from lab.processes import wait_for

if typing.TYPE_CHECKING:
    from lab import Lab
    from lab.lab import LabNode

FOLDER = '/run/cinder'
# Where a borrower stands when everything is there but the copying.
COPYING = 'dm.message:before:enable_hydration'


class Faults(testtools.TestCase):
    """Points where cinder-volume dies or waits, and slow hydrations."""

    lab: Lab

    def wait(self, what: str, condition: Callable[[], object],
             timeout: float = 600) -> typing.Any:
        """The first true value of a condition."""
        return wait_for(what, condition, timeout, 0.2)

    def arm(self, node: LabNode, point: str) -> None:
        """Let cinder-volume die at a point, once."""
        self._arm(node, 'fault', point)

    def freeze(self, node: LabNode, point: str) -> None:
        """Let cinder-volume wait at a point until ``thaw``."""
        # Whoever waits for the frozen call must not wait for ever.
        self.addCleanup(self.disarm, node)
        self._arm(node, 'freeze', point)

    @staticmethod
    def _arm(node: LabNode, kind: str, point: str) -> None:
        node.run(f'install -d -o cinder -g cinder {FOLDER} && '
                 f'echo "{point}" >{FOLDER}/.draft && '
                 f'mv {FOLDER}/.draft {FOLDER}/dmclone-{kind}')

    @staticmethod
    def disarm(node: LabNode) -> None:
        """Forget all points, and let a frozen call go on."""
        if node.running():
            node.run(f'rm -f {FOLDER}/dmclone-*')

    def wait_frozen(self, node: LabNode) -> None:
        """Wait until the point of ``freeze`` is reached."""
        self.wait(f'{node.name} to reach the point', lambda: node.run(
            f'test -e {FOLDER}/dmclone-hold', check=False).code == 0)

    @staticmethod
    def thaw(node: LabNode) -> None:
        """Let a frozen call go on."""
        node.run(f'rm -f {FOLDER}/dmclone-hold')

    def wait_dead(self, node: LabNode) -> None:
        """Wait until a fault has ended cinder-volume."""
        self.wait(f'end of cinder-volume on {node.name}',
                  lambda: not node.volume.running())

    def forget_requests(self) -> None:
        """Let cinder-api drop requests whose answers will not come.

        It holds a lock for each until the call times out.
        """
        self.lab.cinder_api.kill()
        self.lab.cinder_api.start()

    # -- hydrations ---------------------------------------------------------

    def hydrated(self, at: AttachedVolume) -> tuple[int, int] | None:
        """Regions hydrated and in all; None without a clone."""
        found = at.status()
        return (found.hydrated, found.total) if found else None

    def assert_hydrating(self, at: AttachedVolume) -> None:
        """There must be regions that are not here yet."""
        found = self.hydrated(at)
        self.assertIsNotNone(found, 'no clone')
        assert found is not None
        self.assertLess(*found)

    # Nothing of the product is changed by these. A clone that is assembled
    # anew knows nothing of them.

    def brake(self, at: AttachedVolume) -> None:
        """Make a hydration stand still; only what I/O needs is copied."""
        self._by_hand(at, 0, 0)

    def crawl(self, at: AttachedVolume, lender: LabNode) -> None:
        """Let it copy a region at a time, and the lender read it late.

        So there is always a copy under way.
        """
        # A batch size of 0 is 1 to the kernel, and to the service a word
        # that it has no say in this.
        self.assertTrue(self._by_hand(at, 1, 0), 'no clone')
        (loan,) = self._loans(at, lender)
        name, (_, size, _, device, offset) = loan
        self.load(lender, name, f'0 {size} delay {device} {offset} 100',
                  '--readonly')

    def release(self, at: AttachedVolume, lender: LabNode) -> None:
        """Let it run again; what is gone needs no release."""
        for name, (_, size, target, device, offset, *_) in self._loans(
                at, lender):
            if target == 'delay':
                self.load(lender, name, f'0 {size} linear {device} {offset}',
                          '--readonly')
        at.widen()

    @staticmethod
    def _loans(at: AttachedVolume,
               lender: LabNode) -> list[tuple[str, list[str]]]:
        """The loan of a borrower's LV, with the words of its table."""
        return [(name, table.split())
                for name, table in look.tables(lender).items()
                if name.startswith('dmclone-loan-') and name.endswith(at.lv)]

    @staticmethod
    def load(node: LabNode, name: str, table: str, *options: str) -> None:
        """Give a dm device another table."""
        look.device(node, name, 'load', *options, '--table', table)
        look.device(node, name, 'resume')

    @staticmethod
    def _by_hand(at: AttachedVolume, threshold: int, batch: int) -> bool:
        """Let a clone copy so and no other way; whether there is one."""
        wanted = {'hydration_threshold': threshold,
                  'hydration_batch_size': batch}
        while at.let_copy(threshold, batch):
            # The service may have looked before and speak after that.
            time.sleep(0.1)
            status = at.status()
            if status and status.core == wanted:
                return True
        return False
