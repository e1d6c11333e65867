# SPDX-License-Identifier: Apache-2.0
"""What the lab needs on the machine: Debian packages and a virtualenv."""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import platform
import shutil
import sys
from collections.abc import Iterator

from lab.errors import LabError
from lab.processes import run

PYTHON = '/usr/bin/python3'
PACKAGES = (
    'e2fsprogs', 'fio', 'gcc', 'iproute2', 'kmod', 'libc6-dev', 'lvm2',
    'mariadb-client-core', 'mariadb-server-core', 'open-iscsi', 'procps',
    'python3-venv', 'rabbitmq-server', 'sudo', 'udev', 'user-mode-linux')
_REQUIREMENTS = pathlib.Path(__file__).with_name('requirements.txt')
_POLICY = pathlib.Path('/usr/sbin/policy-rc.d')


def cache_directory() -> pathlib.Path:
    """Where things that are slow to make are kept between labs."""
    base = os.environ.get('XDG_CACHE_HOME') or '/var/cache'
    return pathlib.Path(base, 'cinder-dmclone-lab')


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Hold a file lock; waits for another lab that holds it."""
    with path.open('w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(*texts: bytes) -> str:
    """A short name for what is made from ``texts``."""
    return hashlib.sha256(b'\0'.join(texts)).hexdigest()[:12]


def check_machine() -> None:
    """Raise LabError (one line) if no lab can run on this machine."""
    if os.geteuid() != 0:
        raise LabError('the lab needs root (try: sudo)')
    if platform.machine() != 'x86_64':
        raise LabError(f'unsupported machine {platform.machine()}: '
                       'user-mode-linux is packaged for x86_64 only')
    if not os.path.exists('/dev/net/tun'):
        raise LabError('/dev/net/tun is missing: load the tun module, or '
                       'give the container that device')
    if not shutil.which('apt-get'):
        raise LabError('unsupported distribution: no apt-get; the lab runs '
                       'on Debian and Ubuntu')


def missing_packages() -> list[str]:
    """Packages of the list that are not installed."""
    result = run('dpkg-query', '-W', '-f', '${db:Status-Abbrev}${Package}\n',
                 *PACKAGES, check=False)
    present = {line[3:].strip() for line in result.stdout.splitlines()
               if line.startswith('ii')}
    return [name for name in PACKAGES if name not in present]


@contextlib.contextmanager
def _no_daemons() -> Iterator[None]:
    """Keep packages from starting their daemons on this machine."""
    kept = _POLICY.with_name('policy-rc.d.before-dmclone-lab')
    if not kept.exists() and (_POLICY.exists() or _POLICY.is_symlink()):
        _POLICY.rename(kept)
    _POLICY.write_text('#!/bin/sh\nexit 101\n')
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
        if kept.exists() or kept.is_symlink():
            kept.rename(_POLICY)


def install_packages() -> None:
    """Install the missing Debian packages."""
    missing = missing_packages()
    if missing:
        print(f'lab: installing {" ".join(missing)}', file=sys.stderr)
        env = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
        run('apt-get', 'update', '-qq', env=env, check=False)
        with _no_daemons():
            result = run('apt-get', 'install', '-y', '-qq',
                         '--no-install-recommends', *missing, env=env,
                         check=False, timeout=3600)
        if 'Unable to locate package user-mode-linux' in result.stderr:
            raise LabError('unsupported distribution: it has no '
                           'user-mode-linux package')
        if result.returncode:
            last = result.stderr.strip().splitlines()[-1:]
            raise LabError(f'apt-get install failed: {"".join(last)}')
    # A mount point for the modules of the nodes' kernels.
    os.makedirs('/lib/modules', exist_ok=True)


def base_virtualenv() -> pathlib.Path:
    """The virtualenv with everything but this project; built once."""
    requirements = _REQUIREMENTS.read_bytes()
    version = run(PYTHON, '--version').stdout.encode()
    path = cache_directory() / f'venv-{digest(requirements, version)}'
    complete = path / 'complete'
    with locked(cache_directory() / 'venv.lock'):
        if not complete.exists():
            # Scripts hold the path of their virtualenv, so it cannot be
            # made elsewhere and moved; the last file says it is whole.
            shutil.rmtree(path, ignore_errors=True)
            print(f'lab: building {path} (some minutes)', file=sys.stderr)
            run(PYTHON, '-m', 'venv', str(path))
            run(str(path / 'bin/pip'), 'install', '--quiet', '--no-deps',
                '--requirement', str(_REQUIREMENTS), timeout=3600)
            complete.touch()
    return path


def ensure() -> pathlib.Path:
    """Install what is missing; returns the base virtualenv.

    Raises LabError with one line that says what the machine lacks.
    """
    check_machine()
    cache_directory().mkdir(parents=True, exist_ok=True)
    with locked(cache_directory() / 'packages.lock'):
        install_packages()
    return base_virtualenv()
