# SPDX-License-Identifier: Apache-2.0
"""The driver as it was at an earlier revision, for nodes to upgrade from."""
from __future__ import annotations

import pathlib
import shutil

from lab import install, virtualenv
from lab.lab import FAULTY, Lab
from lab.processes import run

# What it says of itself.
VERSION = f'{virtualenv.VERSION}.dev1'


def release() -> str:
    """The tag of the last release before what is checked out; empty if none.
    """
    return _git('tag', '--merged', 'HEAD', '--no-contains', 'HEAD', '--sort',
                '-creatordate', check=False).partition('\n')[0]


def provide(lab: Lab, revision: str) -> pathlib.Path:
    """A virtualenv of the lab with that revision, for ``VolumeService.use``.

    :raises CommandError: if git has no such revision
    """
    at = lab.directory / 'former'
    shutil.rmtree(at, ignore_errors=True)
    checkout, venv = at / 'checkout', at / 'venv'
    export(revision, checkout)
    base = install.base_virtualenv()
    virtualenv.create([base], venv)
    virtualenv.install_checkout(base, venv, at, checkout, VERSION)
    shutil.copy(checkout / 'lab/faulty.py',
                virtualenv.site_packages(venv) / FAULTY)
    return venv


def export(revision: str, path: pathlib.Path) -> None:
    """Put what a revision has into a new directory.

    :raises CommandError: if git has no such revision
    """
    path.mkdir(parents=True)
    archive = path.with_suffix('.tar')
    _git('archive', f'--output={archive}', revision)
    run('tar', '-xf', str(archive), '-C', str(path))
    archive.unlink()


def _git(*words: str, check: bool = True) -> str:
    return run('git', '-C', str(virtualenv.CHECKOUT), *words,
               check=check).stdout
