# SPDX-License-Identifier: Apache-2.0
"""How a clone hydrates for a while, and what comes of it."""

from __future__ import annotations

import typing

# Who has done no I/O for so many seconds is at rest.
CALM = 1.0


class Window(typing.NamedTuple):
    """How much a clone has under way at most, in regions.

    :ivar threshold: in all
    :ivar batch: in one copy
    """

    threshold: int
    batch: int


class Course(typing.NamedTuple):
    """How a clone is to hydrate for a while.

    :ivar name: of the device
    :ivar rest: its window while nobody does I/O
    :ivar work: its window while somebody does
    :ivar wake: whether it is asked to copy then at each look; by itself it
        does so once a second, and goes on until it meets I/O
    :ivar requests: what the last answer said, or -1
    :ivar calm: the same
    """

    name: str
    rest: Window
    work: Window
    wake: bool
    requests: int = -1
    calm: float = CALM


class Progress(typing.NamedTuple):
    """What has come of a course.

    :ivar rested: seconds in which nobody did I/O
    :ivar rest: regions that arrived in these
    :ivar worked: seconds in which somebody did
    :ivar work: regions that arrived in these
    :ivar requests: that have ended since the clone was made
    :ivar calm: seconds for which nobody has done I/O, at least
    """

    name: str
    rested: float
    rest: int
    worked: float
    work: int
    requests: int
    calm: float
