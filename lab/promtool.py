# SPDX-License-Identifier: Apache-2.0
"""promtool, which reads rules and metrics as Prometheus does.

Debian has it in one package with the server, which would be started if that
was installed.
"""
from __future__ import annotations

import pathlib
import sys
import tempfile

from lab import archive, install
from lab.errors import LabError
from lab.processes import run

_PACKAGE = 'prometheus'
_PROGRAM = 'usr/bin/promtool'


def ensure() -> pathlib.Path:
    """The program, of the machine's own distribution; fetched once.

    apt verifies the package, and nothing of it is installed.

    :raises LabError: if it cannot be had; one line
    """
    cache = install.cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    directory = cache / _PACKAGE
    with install.locked(cache / 'packages.lock'):
        if not directory.exists():
            _fetch(directory)
    return directory / _PROGRAM


def _fetch(directory: pathlib.Path) -> None:
    print(f'lab: fetching {_PACKAGE}', file=sys.stderr)
    run('apt-get', 'update', '-qq', check=False)
    with tempfile.TemporaryDirectory(dir=directory.parent) as name:
        # It writes where it is.
        result = run('env', '-C', name, 'LC_ALL=C', 'apt-get', 'download',
                     '-qq', _PACKAGE, check=False, timeout=1800)
        if result.returncode:
            raise LabError(f'apt-get download {_PACKAGE}: '
                           f'{archive.first_error(result.stderr)}')
        package, = pathlib.Path(name).glob('*.deb')
        tree = pathlib.Path(name, 'tree')
        run('dpkg-deb', '--extract', str(package), str(tree))
        if not (tree / _PROGRAM).exists():
            raise LabError(f'{package.name} has no {_PROGRAM}')
        tree.rename(directory)
