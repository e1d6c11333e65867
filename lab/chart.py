# SPDX-License-Identifier: Apache-2.0
"""Pictures (SVG): of ratios, a line for each; of curves over an axis."""
from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from xml.sax.saxutils import escape

from lab.figures import Figure

_WIDTH, _LABEL, _NOTE = 1040, 370, 290
_ROW, _TOP = 26, 56
# Times are better short, all else is better long.
_SHORT = {'s', 'ms'}
_BETTER, _WORSE = '#2a7f3f', '#b3402e'
_FONT = 'font-family="sans-serif" font-size="12"'
# Of curves: the place of the axes, and what is left for names on the right.
_HIGH, _LEFT, _RIGHT, _BOTTOM = 460, 70, 250, 60
_COLORS = ('#1f5fa8', '#b3402e', '#2a7f3f', '#8a5fb0', '#a07010', '#555')
# From one line to the next, times a power of ten; so many lines at most.
_STEPS = (1.0, 2.0, 5.0, 10.0)
_LINES = 8


@dataclasses.dataclass(frozen=True)
class Axis:
    """What is measured along an edge of a picture.

    :ivar log: each power of ten takes the same room; what is not above 0 is
        left out
    """

    title: str
    log: bool = False

    def takes(self, value: float) -> bool:
        """Whether it has a place for a value."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def marks(self, values: Iterable[float]) -> list[float]:
        """Where lines are drawn; the first and the last are the ends."""
        found = [value for value in values if self.takes(value)] or [1.0]
        if self.log:
            first = math.floor(math.log10(min(found)))
            last = max(math.ceil(math.log10(max(found))), first + 1)
            return [10.0 ** power for power in range(first, last + 1)]
        most = max(found) if max(found) > 0 else 1.0
        scale = 10.0 ** math.floor(math.log10(most / _LINES))
        step = next(step * scale for step in _STEPS
                    if step * scale * _LINES >= most)
        return [step * number for number in range(math.ceil(most / step) + 1)]

    def share(self, value: float, marks: Sequence[float]) -> float:
        """How far along the axis a value is, from 0 to 1."""
        first, last = marks[0], marks[-1]
        if self.log:
            return math.log(value / first) / math.log(last / first)
        return (value - first) / (last - first)


@dataclasses.dataclass(frozen=True)
class Curve:
    """Points, and a line through the medians of those at one place."""

    name: str
    points: Sequence[tuple[float, float]]

    def medians(self) -> list[tuple[float, float]]:
        """The line, from left to right."""
        found: dict[float, list[float]] = {}
        for x, y in self.points:
            found.setdefault(x, []).append(y)
        return [(x, statistics.median(found[x])) for x in sorted(found)]


def curves(shown: Sequence[Curve], title: str, across: Axis, up: Axis,
           events: Sequence[tuple[float, str]] = ()) -> str:
    """An SVG with several curves over one axis.

    :param events: what happened where on the axis that goes across
    """
    taken = [dataclasses.replace(curve, points=[
        (x, y) for x, y in curve.points if across.takes(x) and up.takes(y)])
        for curve in shown]
    below = across.marks([*(x for curve in taken for x, _ in curve.points),
                          *(x for x, _ in events)])
    beside = up.marks(y for curve in taken for _, y in curve.points)

    def at(x: float, y: float) -> tuple[float, float]:
        return (_LEFT + across.share(x, below) * (_WIDTH - _LEFT - _RIGHT),
                _HIGH - _BOTTOM
                - up.share(y, beside) * (_HIGH - _BOTTOM - _TOP))

    lines = _frame(_HIGH, title)
    for mark in below:
        (x, low), (_, high) = at(mark, beside[0]), at(mark, beside[-1])
        lines += [_line((x, low), (x, high), '#ddd'),
                  _text(x, low + 18, f'{mark:g}', 'middle')]
    for mark in beside:
        (left, y), (right, _) = at(below[0], mark), at(below[-1], mark)
        lines += [_line((left, y), (right, y), '#ddd'),
                  _text(left - 8, y + 4, f'{mark:g}', 'end')]
    lines += [_text(_WIDTH - _RIGHT, _HIGH - 18, across.title, 'end'),
              _text(12, _TOP - 14, up.title)]
    for number, (x, name) in enumerate(sorted(events)):
        (place, low), (_, high) = at(x, beside[0]), at(x, beside[-1])
        # Those that are near one another are told apart by their height.
        lines += [_line((place, low), (place, high), 'black'),
                  _text(place + 4, high + 12 + 14 * (number % 4), name)]
    for number, curve in enumerate(taken):
        lines += _curve(curve, at, _COLORS[number % len(_COLORS)],
                        _TOP + 20 * number)
    return '\n'.join([*lines, '</svg>']) + '\n'


def _curve(curve: Curve, at: Callable[[float, float], tuple[float, float]],
           color: str, beside: float) -> list[str]:
    line = ' '.join(f'{x:.1f},{y:.1f}' for x, y in (
        at(*point) for point in curve.medians()))
    return [
        f'<polyline points="{line}" fill="none" stroke="{color}"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{color}"/>'
          for x, y in (at(*point) for point in curve.points)),
        f'<text x="{_WIDTH - _RIGHT + 12}" y="{beside}" fill="{color}">'
        f'{escape(curve.name)}</text>']


def _line(begin: tuple[float, float], end: tuple[float, float],
          color: str) -> str:
    return (f'<line x1="{begin[0]:.1f}" x2="{end[0]:.1f}" '
            f'y1="{begin[1]:.1f}" y2="{end[1]:.1f}" stroke="{color}"/>')


def _text(x: float, y: float, text: str, anchor: str = 'start') -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f'{escape(text)}</text>')


def _frame(height: float, title: str) -> list[str]:
    """The beginning of a picture."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{height}" viewBox="0 0 {_WIDTH} {height}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="20" font-size="14">{escape(title)}</text>']


def ratios(figures: Sequence[Figure], title: str) -> str:
    """An SVG with the median of each ratio, and the pairs it is made of.

    :param figures: those that are no ratio, or have been divided by 0, are
        left out
    """
    shown = [figure for figure in figures
             if figure.of and all(map(math.isfinite, figure.pairs()))]
    least, most = _limits(shown)
    height = _TOP + _ROW * len(shown) + 12

    def at(value: float) -> float:
        share = math.log(value / least) / math.log(most / least)
        return _LABEL + share * (_WIDTH - _LABEL - _NOTE)

    lines = _frame(height, title)
    for mark in _marks(least, most):
        x = at(mark)
        lines += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" '
            f'y2="{height - 8}" stroke="{"black" if mark == 1 else "#ccc"}"/>',
            f'<text x="{x:.1f}" y="{_TOP - 14}" text-anchor="middle">'
            f'{mark:g}</text>']
    for number, figure in enumerate(shown):
        lines += _row(figure, at, _TOP + _ROW * number + _ROW / 2)
    return '\n'.join([*lines, '</svg>']) + '\n'


def _row(figure: Figure, at: Callable[[float], float], y: float) -> list[str]:
    pairs = figure.pairs()
    short = figure.note.rpartition(' ')[2] in _SHORT
    value = statistics.median(pairs)
    color = _BETTER if (value < 1) == short else _WORSE
    first, last, middle = map(at, (min(pairs), max(pairs), value))
    return [
        f'<text x="{_LABEL - 12}" y="{y + 4:.1f}" text-anchor="end">'
        f'{escape(figure.name)}</text>',
        f'<line x1="{first:.1f}" x2="{last:.1f}" y1="{y}" y2="{y}" '
        f'stroke="{color}" stroke-width="2"/>',
        f'<circle cx="{middle:.1f}" cy="{y}" r="5" fill="{color}"/>',
        f'<text x="{_WIDTH - _NOTE + 12}" y="{y + 4:.1f}" fill="#555">'
        f'{escape(figure.note)}</text>']


def _limits(shown: Sequence[Figure]) -> tuple[float, float]:
    """The powers of ten around all, and 1."""
    values = [1.0, *(pair for figure in shown for pair in figure.pairs())]
    least, most = (math.log10(end(values)) for end in (min, max))
    return 10.0 ** min(math.floor(least), -1), 10.0 ** max(math.ceil(most), 1)


def _marks(least: float, most: float) -> list[float]:
    first, last = round(math.log10(least)), round(math.log10(most))
    return [10.0 ** power for power in range(first, last + 1)]
