# SPDX-License-Identifier: Apache-2.0
"""How much hydrates at a time follows the options and the server."""
from __future__ import annotations

from lab import fio
from lab.attached import BATCH, MOST, AttachedVolume
from tests.functional import base

# While a server works at least, and before anything is known, in bytes
# (windows.py).
LEAST, FIRST = 64 << 10, 256 << 10


class PaceTest(base.FunctionalTest):
    """Node 1 hydrates from node 2, which takes its time to read."""

    def rates(self, **options: int) -> None:
        """Change them as an operator does, while cinder-volume runs."""
        service = self.node1.volume
        service.choose(**{f'dmclone_hydration_{name}_mib': value
                          for name, value in options.items()})
        service.reread()

    def window(self, at: AttachedVolume) -> tuple[int, int]:
        """What a clone has under way at most, in bytes; 0 without one."""
        status = at.status()
        if status is None:
            return 0, 0
        region = int(status.region_size.to_bytes())
        threshold, batch = (status.core[f'hydration_{key}'] * region
                            for key in ('threshold', 'batch_size'))
        return threshold, batch

    def test_limits_change_while_it_runs(self) -> None:
        """Nothing is started anew, and no server waits for it.

        What a server at rest leaves is taken again.
        """
        self.addCleanup(self.rates, floor=50, ceiling=0)
        self.rates(floor=0, ceiling=1)
        pids, all_ = self.node1.volume.pids(), (MOST, BATCH)
        volume = self.volume(self.node2, 3)
        at = self.attach_slowly(volume, self.node2, self.node1, crawl=True)
        self.assertTrue(at.widen())
        self.wait('as little as the ceiling lets through',
                  lambda: 0 < self.window(at)[0] < FIRST)
        with fio.Running(self.node1, fio.command(
                at.path, *fio.SYNC, *fio.for_seconds(600), '--size=1M')) as io:
            self.rates(floor=0, ceiling=0)
            self.wait('little at a time',
                      lambda: self.window(at) == (LEAST, LEAST // 4))
            self.rates(floor=1 << 10, ceiling=0)
            self.wait('what a floor that is never reached allows',
                      lambda: self.window(at) in (all_, (0, 0)))
            self.rates(floor=0, ceiling=0)
            self.wait('little again', lambda: self.window(at) in (
                (LEAST, LEAST // 4), (0, 0)))
            self.assertFalse(io.ended())
            io.end()
        self.wait('all while the server rests',
                  lambda: self.window(at) in (all_, (0, 0)))
        self.assertEqual(pids, self.node1.volume.pids())
        self.release(at, self.node2)
        self.wait_complete(volume)
