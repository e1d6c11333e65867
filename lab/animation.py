# SPDX-License-Identifier: Apache-2.0
"""A recording as a picture that moves: SVG and CSS, without a script.

Each line is in the picture once, below the one before, and becomes visible
when it was written; the whole moves up as a terminal scrolls. So it is far
smaller than a sequence of screens. It plays once. What is left of it where
nothing is to move, or can, is the end.
"""
from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from lab.recording import Line, Version

ROWS = 28
_WIDTH, _HEIGHT = 8.4, 18
_MARGIN, _HEAD = 16, 34
# What a line begins with, and how it looks: a command, a result.
_LOOKS = ((re.compile(r' *(\$|node\d+#) '), 'c'), (re.compile(r' *= '), 'r'))
_STYLE = '''
.s{fill:#f6f8fa;stroke:#d0d7de}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",\
monospace;fill:#24292f;white-space:pre}
.t{fill:#57606a}.c{fill:#0550ae}.r{fill:#116329}.b{font-weight:bold}
@media(prefers-color-scheme:dark){
.s{fill:#0d1117;stroke:#30363d}
text{fill:#e6edf3}.t{fill:#9198a1}.c{fill:#79c0ff}.r{fill:#7ee787}}
.l text{animation:hide 1ms backwards}
.l .m{visibility:hidden;animation:show 1ms}
@keyframes hide{from,to{visibility:hidden}}
@keyframes show{from,to{visibility:visible}}
'''
_STILL = '@media(prefers-reduced-motion:reduce){*{animation:none!important}}'


def draw(lines: Sequence[Line], title: str, columns: int) -> str:
    """The picture.

    :param lines: what each says, by seconds (``recording.lines``)
    :param title: what stands above
    :param columns: how wide the terminal was
    """
    width = round(columns * _WIDTH) + 2 * _MARGIN
    screen = ROWS * _HEIGHT
    height = _HEAD + screen + _MARGIN
    text = html.escape(title)
    return '\n'.join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
        f'{height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{text}">',
        f'<style>{_STYLE}{_scroll(lines)}{_STILL}</style>',
        f'<rect class="s" x=".5" y=".5" width="{width - 1}" '
        f'height="{height - 1}" rx="6"/>',
        f'<text class="t" x="{_MARGIN}" y="22">{text}</text>',
        f'<svg y="{_HEAD}" width="{width}" height="{screen}">',
        '<g class="l" xml:space="preserve">', *_texts(lines),
        '</g></svg></svg>')) + '\n'


def _texts(lines: Sequence[Line]) -> Iterator[str]:
    for row, line in enumerate(lines):
        ends = [version.at for version in line[1:]]
        for version, end in zip(line, [*ends, None]):
            yield _text(version, end, row)


def _text(version: Version, end: float | None, row: int) -> str:
    """A line as it stands until ``end``, or for good."""
    words = ['m'] if end is not None else []
    words += ['b'] if version.bold else []
    words += [look for pattern, look in _LOOKS if pattern.match(version.text)]
    kind = f' class="{" ".join(words)}"' if words else ''
    shown = f'animation-delay:{version.at:.2f}s'
    if end is not None:
        shown += f';animation-duration:{end - version.at:.2f}s'
    # Spaces in front are left out: not every reader of SVG keeps them.
    text = version.text.lstrip()
    x = _MARGIN + (len(version.text) - len(text)) * _WIDTH
    return (f'<text{kind} x="{x:g}" y="{row * _HEIGHT + 14}" '
            f'style="{shown}">{html.escape(text, quote=False)}</text>')


def _scroll(lines: Sequence[Line]) -> str:
    """Move up by a line whenever one comes below the last row."""
    steps = {line[0].at: row + 1 - ROWS for row, line in enumerate(lines)
             if line and row >= ROWS}
    if not steps:
        return ''
    length = max(steps)
    frames = ''.join(
        f'{100 * at / length:.2f}%{{transform:translateY('
        f'-{rows * _HEIGHT}px)}}' for at, rows in steps.items())
    return (f'.l{{transform:translateY(-{max(steps.values()) * _HEIGHT}px);'
            f'animation:scroll {length:.2f}s step-end}}\n'
            f'@keyframes scroll{{from{{transform:none}}{frames}}}\n')
