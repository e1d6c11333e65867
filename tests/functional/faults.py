# SPDX-License-Identifier: Apache-2.0
"""What tests do to cinder-volume and to a hydration (see lab/faulty.py)."""
from __future__ import annotations

import typing
from collections.abc import Callable

import testtools

from lab.processes import wait_for

if typing.TYPE_CHECKING:
    from lab import Lab
    from lab.lab import LabNode
    from tests.functional.base import Attachment

FOLDER = '/run/cinder'
# Where a borrower stands when everything is there but the copying.
COPYING = 'dm.message:before:enable_hydration'

# The loan of a borrower's LV, and the words of its table.
_LOAN = ('name=$(dmsetup ls | grep -o "dmclone-loan-.*-{lv}"); '
         'set -- $(dmsetup table "$name"); ')
_LOAD = '| dmsetup load --readonly "$name" && dmsetup resume "$name"'


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

    def hydrated(self, at: Attachment) -> tuple[int, int] | None:
        """Regions hydrated and in all; None without a clone."""
        words = at.node.run(
            ['dmsetup', 'status', '--noflush', f'dmclone-clone-{at.lv}'],
            check=False).stdout.split()
        if len(words) < 7:
            return None
        done, total = words[6].split('/')
        return int(done), int(total)

    def assert_hydrating(self, at: Attachment) -> None:
        """There must be regions that are not here yet."""
        found = self.hydrated(at)
        self.assertIsNotNone(found, 'no clone')
        assert found is not None
        self.assertLess(*found)

    def brake(self, at: Attachment, lender: LabNode) -> None:
        """Make a hydration all but stand still: half an hour for 1 GiB.

        Nothing of the product is changed: the clone copies one region at a
        time, and the lender answers each read late.
        """
        self._pace(at, 1, 1)
        lender.run(f'{_LOAN.format(lv=at.lv)} echo "0 $2 delay $4 $5 100" '
                   f'{_LOAD}')

    def release(self, at: Attachment, lender: LabNode) -> None:
        """Let it run again; what is gone needs no release."""
        lender.run(f'{_LOAN.format(lv=at.lv)} [ "$3" != delay ] || {{ '
                   f'echo "0 $2 linear $4 $5" {_LOAD}; }}', check=False)
        self._pace(at, 256, 64, check=False)

    @staticmethod
    def _pace(at: Attachment, threshold: int, batch: int,
              check: bool = True) -> None:
        name = f'dmclone-clone-{at.lv}'
        at.node.run(
            f'dmsetup message {name} 0 hydration_threshold {threshold} && '
            f'dmsetup message {name} 0 hydration_batch_size {batch}',
            check=check)
