# SPDX-License-Identifier: Apache-2.0
"""Programs of this package that run in a node, which does not have it."""
from __future__ import annotations

import pathlib
import shutil

_HERE = pathlib.Path(__file__).parent
_FILES = ('blocks.py', 'ledger.py', 'guest/files.py', 'guest/verify.py')
_FOLDER = 'programs'


def install(directory: pathlib.Path) -> None:
    """Put them where the nodes of a lab can see them.

    :param directory: the lab's
    """
    for name in _FILES:
        target = directory / _FOLDER / 'lab' / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_HERE / name, target)


def command(directory: pathlib.Path, name: str, *words: object) -> list[str]:
    """What runs one in a node: one of _FILES, with dots and without ".py".

    :param directory: the lab's
    :param words: what its main() takes
    """
    return ['env', '-C', str(directory / _FOLDER), '/usr/bin/python3', '-m',
            f'lab.{name}', *map(str, words)]
