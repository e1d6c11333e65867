# SPDX-License-Identifier: Apache-2.0
"""How much of a volume is under way at a time, so that it keeps a rate.

The more, the more is copied, and the longer a server waits that does I/O
meanwhile. So while servers work it is as little as the floor needs; while
they rest it is all that is allowed, or as much as the ceiling lets through.
What a rate needs is found by trying: it depends on disks, network and load.
"""

from __future__ import annotations

import dataclasses
from typing import Self

from cinder_dmclone.courses import Course
from cinder_dmclone.courses import Progress
from cinder_dmclone.courses import Window
from cinder_dmclone.settings import Rates
from cinder_dmclone.units import Bytes

# Less is hardly better for who waits, and copies a good deal less.
LEAST = Bytes(64 << 10)
FIRST = Bytes(256 << 10)
# A window has so many copies: while one is written the next is read.
COPIES = 4
# What is aimed at, so that a floor is exceeded and a ceiling is not.
ABOVE, BELOW = 1.25, 0.9
# From one time to the next a window changes by this factor at most.
STEP = 2.0
# For so many seconds it has to have been used, to tell something.
ENOUGH = 0.3


@dataclasses.dataclass(frozen=True)
class Widths:
    """What one clone may have under way.

    :ivar rest: while nobody does I/O, in bytes
    :ivar work: while somebody does
    """

    rest: Bytes
    work: Bytes

    @classmethod
    def first(cls, rates: Rates, most: Bytes) -> Self:
        """Before anything is known of it."""
        few = min(most, FIRST)
        return cls(few if rates.ceiling else most, few)

    def after(self, progress: Progress, region: Bytes, rates: Rates,
              most: Bytes) -> Widths:
        """What follows from the progress with these.

        :param rates: of this clone alone
        """
        rest, work = most, self.work
        least = min(region if rates.ceiling else LEAST, most)
        if rates.ceiling:
            rest = _wanted(self.rest, progress.rested, progress.rest * region,
                           rates.ceiling * BELOW)
        if rates.floor:
            work = _wanted(self.work, progress.worked, progress.work * region,
                           _floor(rates))
        return Widths(max(least, min(rest, most)), max(least, min(work, most)))

    def course(self, name: str, region: Bytes, rates: Rates,
               batch: Bytes, last: Progress | None) -> Course:
        """What is asked for next.

        :param batch: how much one copy has at most
        """
        return Course(
            name, _window(self.rest, region, batch),
            _window(self.work if rates.floor else LEAST, region, batch),
            bool(rates.floor),
            *((last.requests, last.calm) if last else ()))


def _floor(rates: Rates) -> float:
    wanted = rates.floor * ABOVE
    return min(wanted, rates.ceiling * BELOW) if rates.ceiling else wanted


def _wanted(width: Bytes, seconds: float, copied: int,
            rate: float) -> Bytes:
    if seconds < ENOUGH:
        return width
    # A window that copied nothing has met I/O each time.
    factor = rate * seconds / copied if copied else STEP
    return Bytes(int(width * min(max(factor, 1 / STEP), STEP)))


def _window(width: Bytes, region: Bytes, batch: Bytes) -> Window:
    return Window(max(1, width // region),
                  max(1, min(width // COPIES, batch) // region))
