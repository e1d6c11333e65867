# SPDX-License-Identifier: Apache-2.0
"""The logs of a lab."""
from __future__ import annotations

import pathlib
import shutil
import sys


def find(lab: pathlib.Path) -> list[pathlib.Path]:
    """Logs of every service and every node's console in a lab's directory."""
    return sorted([*lab.glob('*.log'), *lab.glob('node*/*.log'),
                   *lab.glob('node*/qemu/*.log'),
                   *lab.glob('node*/instances/*/*.log')])


def collect(lab: pathlib.Path, target: pathlib.Path) -> None:
    """Copy all logs to a directory (made if missing)."""
    target.mkdir(parents=True, exist_ok=True)
    for path in find(lab):
        shutil.copy(path, target / '-'.join(path.relative_to(lab).parts))


def keep(lab: pathlib.Path) -> None:
    """Save the logs of a lab in which something failed; say where."""
    place = pathlib.Path('/var/tmp', f'dmclone-lab-{lab.name}-logs')
    collect(lab, place)
    print(f'lab: the logs are in {place}', file=sys.stderr)
