# SPDX-License-Identifier: Apache-2.0
"""A picture of ratios: a line for each, on one axis."""
from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from lab.figures import Figure

_WIDTH, _LABEL, _NOTE = 1040, 370, 290
_ROW, _TOP = 26, 56
# Times are better short, all else is better long.
_SHORT = {'s', 'ms'}
_BETTER, _WORSE = '#2a7f3f', '#b3402e'
_FONT = 'font-family="sans-serif" font-size="12"'


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

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{height}" viewBox="0 0 {_WIDTH} {height}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="20" font-size="14">{escape(title)}</text>']
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
