# SPDX-License-Identifier: Apache-2.0
"""Goes on until the time is over, then looks for what is wrong or left."""
from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import typing
from collections import Counter
from collections.abc import Callable

from lab.checker import Checker
from lab.errors import LabError
from lab.show import Failure
from lab.soak import growth
from lab.soak.actor import Actor
from lab.soak.choice import Choice
from lab.soak.model import Step

if typing.TYPE_CHECKING:
    from lab.lab import Lab


class Journal:
    """The steps as JSON lines, each written when it has ended."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('')

    def note(self, **what: object) -> None:
        """Write a line."""
        with self.path.open('a') as file:
            file.write(json.dumps(what) + '\n')


class Engine:
    """One run in a lab.

    :ivar number: of the step that is under way, from 1
    :ivar counts: how many steps of each verb and outage there were
    :ivar tries: how many tries of steps failed and were made again
    """

    def __init__(self, lab: Lab, gib: int, choice: Choice, journal: Journal,
                 tell: Callable[[str], object]) -> None:
        self.number = 0
        self.counts: Counter[str] = Counter()
        self.tries = 0
        self.samples: list[growth.Sample] = []
        self.checker = Checker(lab, gib)
        self._lab = lab
        self._choice = choice
        self._journal = journal
        self._tell = tell
        self._begin = time.monotonic()
        self._actor = Actor(lab, gib)

    def run(self, seconds: float) -> None:
        """Take steps for so long, then look at all.

        :raises Failure: something was not as it must be
        """
        self._run(lambda: time.monotonic() < self._begin + seconds)
        found = growth.verdict(self.samples)
        if found:
            raise Failure(f'what must not grow: {"; ".join(found)}')

    def steps(self, count: int) -> None:
        """Take so many steps, then look at all but what grows.

        :raises Failure: something was not as it must be
        """
        self._run(lambda: self.number < count)

    def _run(self, goes_on: Callable[[], bool]) -> None:
        self._lab.unlimited()
        try:
            while goes_on():
                self.step(self._choice.next(self._actor.model))
            self.close()
        finally:
            self._actor.close()

    def step(self, step: Step) -> None:
        """Take one step."""
        self.number += 1
        self._tell(f'{self.number:4} {step}')
        begin = time.monotonic()
        error = ''
        try:
            self._actor.do(step)
        except (Failure, LabError, OSError) as exc:
            error = f'step {self.number} ({step}): {exc}'
            raise Failure(error) from exc
        finally:
            patience = self._actor.patience
            self.tries += patience.tries
            self._journal.note(
                number=self.number, at=round(begin - self._begin, 1),
                seconds=round(time.monotonic() - begin, 1),
                **dataclasses.asdict(step), said=patience.said, error=error)
        self.counts[step.verb] += 1
        if step.outage:
            self.counts[step.outage.kind] += 1
        self.samples += filter(None, (
            growth.take(self.number, node) for node in self._lab.nodes))

    def close(self) -> None:
        """Look at all there is, delete it, and look for what is left."""
        model = self._actor.model
        model.doubt()
        while (step := self._choice.closing(model)) is not None:
            self.step(step)
        left = self.checker.check() + self._actor.left()
        self._journal.note(left=left)
        if left:
            raise Failure(f'left behind: {"; ".join(left)}')
