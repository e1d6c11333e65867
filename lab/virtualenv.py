# SPDX-License-Identifier: Apache-2.0
"""A lab's own virtualenv: the shared base and this checkout on top."""
from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Sequence

from lab import install
from lab.processes import run

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
# What a lab takes the checkout for.
VERSION = '0.0.0'
_SKIP = shutil.ignore_patterns(
    '.stestr', '.tox', '.venv', '__pycache__', 'build', 'dist',
    '*.egg-info')


def commit() -> str:
    """What is checked out, with a mark if it was changed since."""
    return run('git', '-C', str(CHECKOUT), 'describe', '--always', '--dirty',
               check=False).stdout.strip()


def site_packages(venv: pathlib.Path) -> pathlib.Path:
    """Where a virtualenv keeps its packages."""
    return next(iter(venv.glob('lib/python3.*/site-packages')))


def create(layers: Sequence[pathlib.Path], path: pathlib.Path) -> None:
    """Make the virtualenv ``path`` that sees everything of ``layers``."""
    shutil.rmtree(path, ignore_errors=True)
    run(install.PYTHON, '-m', 'venv', '--without-pip', str(path))
    (site_packages(path) / 'base.pth').write_text(
        ''.join(f'{site_packages(layer)}\n' for layer in layers))
    for layer in layers:
        _copy_scripts(layer, path)
        shutil.copytree(layer / 'etc', path / 'etc', dirs_exist_ok=True)


def _copy_scripts(layer: pathlib.Path, path: pathlib.Path) -> None:
    old = f'#!{layer}/bin/python'.encode()
    new = f'#!{path}/bin/python'.encode()
    for script in (layer / 'bin').iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        text = script.read_bytes()
        if text.startswith(old):
            copy = path / 'bin' / script.name
            copy.write_bytes(text.replace(old, new, 1))
            copy.chmod(0o755)


def install_checkout(base: pathlib.Path, path: pathlib.Path,
                     scratch: pathlib.Path,
                     checkout: pathlib.Path = CHECKOUT,
                     version: str = VERSION) -> None:
    """Install a checkout into the virtualenv as a packager would."""
    _pip(base, scratch, checkout, version, '--python',
         str(path / 'bin/python'), 'install', '--force-reinstall')


def build_wheel(base: pathlib.Path, scratch: pathlib.Path) -> None:
    """Put the wheel of this checkout into the folder ``wheels``."""
    _pip(base, scratch, CHECKOUT, VERSION, 'wheel', '--wheel-dir',
         str(scratch / 'wheels'))


def _pip(base: pathlib.Path, scratch: pathlib.Path, checkout: pathlib.Path,
         version: str, *words: str) -> None:
    # Built from a copy: a build writes into its source tree.
    source = scratch / 'source'
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout, source, symlinks=True, ignore=_SKIP)
    # A lab needs neither git nor a history.
    env = {**os.environ, 'PBR_VERSION': version}
    run(str(base / 'bin/pip'), *words, '--quiet', '--no-deps',
        '--no-build-isolation', '--no-index', str(source), env=env)
    shutil.rmtree(source)
