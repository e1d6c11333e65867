# SPDX-License-Identifier: Apache-2.0
"""Figures of a benchmark: samples, what is made of them, and aims."""
from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Aim:
    """What a figure should be: at least or at most ``bound``."""

    bound: float
    most: bool = False

    def met(self, value: float) -> bool:
        return value <= self.bound if self.most else value >= self.bound

    def __str__(self) -> str:
        return f'{"<=" if self.most else ">="} {self.bound:g}'


@dataclasses.dataclass(frozen=True)
class Figure:
    """One result.

    ``samples`` are the single measurements, by name; if it is a ratio, ``of``
    are the names of what is divided by what.

    :ivar limits: what keeps it from its aim, should it be missed
    """

    name: str
    value: float
    unit: str = ''
    note: str = ''
    aim: Aim | None = None
    samples: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    of: tuple[str, str] | None = None
    limits: str = ''

    def pairs(self) -> list[float]:
        """The ratio of each pair of measurements; none if it is no ratio.

        It is infinite where the second of a pair is 0.
        """
        if not self.of:
            return []
        above, below = (self.samples[name] for name in self.of)
        return [first / second if second else math.inf
                for first, second in zip(above, below, strict=True)]

    @property
    def spread(self) -> str:
        """The least and the greatest of its pairs, if there are several."""
        pairs = self.pairs()
        return span(pairs) if len(pairs) > 1 else ''

    @property
    def missed(self) -> bool:
        """Whether it has an aim that it does not reach."""
        return self.aim is not None and not self.aim.met(self.value)

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return ''
        word = 'missed' if self.missed else 'met'
        return f'aim {self.aim}: {word}'

    def as_json(self) -> dict[str, Any]:
        """The figure for a file."""
        found = dataclasses.asdict(self)
        # JSON has no number for what is infinite.
        if math.isinf(self.value):
            found['value'] = None
        found['samples'] = {
            name: [None if math.isinf(sample) else sample
                   for sample in samples]
            for name, samples in self.samples.items()}
        if self.aim:
            found['aim'] = str(self.aim)
            found['met'] = not self.missed
        return found


def ratio(name: str, above: str, below: str,
          samples: dict[str, list[float]], unit: str,
          aim: Aim | None = None, limits: str = '') -> Figure:
    """The median of the ratios of ``above`` to ``below``, pair by pair.

    Both names are keys of ``samples``; what was measured together is
    divided, so that a machine busy for a while does not show. ``samples`` may
    have others too.
    """
    first, second = (number(statistics.median(samples[key]))
                     for key in (above, below))
    found = Figure(name, 0, note=f'{above} {first}, {below} {second} {unit}',
                   aim=aim, samples=samples, of=(above, below), limits=limits)
    return dataclasses.replace(
        found, value=round(statistics.median(found.pairs()), 3))


def number(value: float) -> str:
    """Three digits are enough for a person."""
    return f'{value:.0f}' if abs(value) >= 100 else f'{value:.3g}'


def span(values: Sequence[float]) -> str:
    """The least and the greatest."""
    return f'{number(min(values))} to {number(max(values))}'


def table(figures: Sequence[Figure]) -> list[str]:
    """Lines for a person: a figure, its aim, and what it is made of."""
    lines = []
    for figure in figures:
        value = f'{number(figure.value)} {figure.unit}'.strip()
        words = [f'{figure.name:<42}{value:>12}', figure.spread,
                 figure.verdict]
        lines.append('  '.join(filter(None, words)))
        if figure.note:
            lines.append(f'    {figure.note}')
        if figure.missed and figure.limits:
            lines.append(f'    limited by {figure.limits}')
    return lines


def report(figures: Sequence[Figure], **about: Any) -> str:
    """All figures as JSON."""
    return json.dumps({**about, 'figures': [figure.as_json()
                                            for figure in figures]},
                      indent=2) + '\n'


def dd_seconds(stderr: str) -> float:
    """How long ``dd`` says it took."""
    match = re.search(r'copied, ([\d.e+-]+) s', stderr)
    if not match:
        raise ValueError(f'not the end of dd: {stderr!r}')
    return float(match[1])
