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
from collections.abc import Iterator, Sequence

from lab.errors import LabError
from lab.processes import run

PYTHON = '/usr/bin/python3'
PACKAGES = (
    'e2fsprogs', 'fio', 'gcc', 'iproute2', 'kmod', 'libc6-dev', 'lvm2',
    'mariadb-client-core', 'mariadb-server-core', 'open-iscsi', 'procps',
    'python3-venv', 'rabbitmq-server', 'sudo', 'thin-provisioning-tools',
    'udev')
# What a Galera cluster needs beside them (mariadb-server has the script by
# which a node joins, galera-4 comes with it), with a proxy in front, and where
# tooz's locks are.
GALERA_PACKAGES = ('haproxy', 'mariadb-server', 'redis-server', 'rsync')
# The client and the server of volatile disks; distributions have the latter
# in one package or the other.
DISK_PACKAGES = ('nbd-client', 'qemu-system-common', 'qemu-utils')
# What a lab with Nova needs beside them; nothing of it comes as a service of
# the machine.
NOVA_PACKAGES = (
    'dropbear-bin', 'libvirt-clients', 'libvirt-daemon', 'openssh-client',
    'patch', 'python3-libvirt', 'qemu-system-x86', 'qemu-utils', 'seabios')
_REQUIREMENTS = pathlib.Path(__file__).with_name('requirements.txt')
_NOVA_REQUIREMENTS = _REQUIREMENTS.with_name('requirements-nova.txt')
# By which Nova extends volumes that are attached; operators have it, too.
_NOVA_PATCH = _REQUIREMENTS.parent.parent / 'etc/nova/local-extend.patch'
# Debian builds the bindings for its Python and its libvirt.
_LIBVIRT = pathlib.Path('/usr/lib/python3/dist-packages')
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


def missing_packages(packages: Sequence[str]) -> list[str]:
    """Packages of the list that are not installed."""
    result = run('dpkg-query', '-W', '-f', '${db:Status-Abbrev}${Package}\n',
                 *packages, check=False)
    present = {line[3:].strip() for line in result.stdout.splitlines()
               if line.startswith('ii')}
    return [name for name in packages if name not in present]


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


def ensure_packages(packages: Sequence[str]) -> None:
    """Install those Debian packages of the list that are missing."""
    with locked(cache_directory() / 'packages.lock'):
        _install_packages(packages)


def _install_packages(packages: Sequence[str]) -> None:
    missing = missing_packages(packages)
    if missing:
        print(f'lab: installing {" ".join(missing)}', file=sys.stderr)
        env = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
        run('apt-get', 'update', '-qq', env=env, check=False)
        with _no_daemons():
            result = run('apt-get', 'install', '-y', '-qq',
                         '--no-install-recommends', *missing, env=env,
                         check=False, timeout=3600)
        if result.returncode:
            last = result.stderr.strip().splitlines()[-1:]
            raise LabError(f'apt-get install failed: {"".join(last)}')


def _virtualenv(name: str, requirements: pathlib.Path,
                *patches: pathlib.Path) -> pathlib.Path:
    """A virtualenv of the cache with these requirements; built once.

    :param patches: changes that are made to it
    """
    path = cache_directory() / name
    complete = path / 'complete'
    with locked(cache_directory() / 'venv.lock'):
        if not complete.exists():
            # Scripts hold the path of their virtualenv, so it cannot be
            # made elsewhere and moved; the last file says it is whole.
            shutil.rmtree(path, ignore_errors=True)
            print(f'lab: building {path} (some minutes)', file=sys.stderr)
            run(PYTHON, '-m', 'venv', str(path))
            run(str(path / 'bin/pip'), 'install', '--quiet', '--no-deps',
                '--requirement', str(requirements), timeout=3600)
            site, = path.glob('lib/python3.*/site-packages')
            for patch in patches:
                run('patch', '--quiet', '-p1', '-d', str(site), '-i',
                    str(patch))
            complete.touch()
    return path


def base_virtualenv() -> pathlib.Path:
    """The virtualenv with everything but this project."""
    version = run(PYTHON, '--version').stdout.encode()
    name = digest(_REQUIREMENTS.read_bytes(), version)
    return _virtualenv(f'venv-{name}', _REQUIREMENTS)


def ensure() -> pathlib.Path:
    """Install what is missing; returns the base virtualenv.

    Raises LabError with one line that says what the machine lacks.
    """
    check_machine()
    cache_directory().mkdir(parents=True, exist_ok=True)
    ensure_packages(PACKAGES)
    return base_virtualenv()


def ensure_galera() -> None:
    """Install what a Galera cluster needs beside what ensure() gave."""
    ensure_packages(GALERA_PACKAGES)


def ensure_volatile() -> None:
    """Install what serves volatile disks."""
    ensure_packages(DISK_PACKAGES)


def ensure_nova(base: pathlib.Path, more: Sequence[str]) -> pathlib.Path:
    """Install what a lab with Nova needs beside what ensure() gave.

    ``more`` are further Debian packages.  Returns a virtualenv that sees
    everything of that one too.
    """
    ensure_packages((*NOVA_PACKAGES, *more))
    name = digest(base.name.encode(), _NOVA_REQUIREMENTS.read_bytes(),
                  _NOVA_PATCH.read_bytes())
    path = _virtualenv(f'venv-nova-{name}', _NOVA_REQUIREMENTS, _NOVA_PATCH)
    with locked(cache_directory() / 'venv.lock'):
        _see(path, base)
    return path


def _see(path: pathlib.Path, base: pathlib.Path) -> None:
    """Make one virtualenv see another one and the bindings of libvirt."""
    site, = path.glob('lib/python3.*/site-packages')
    below, = base.glob('lib/python3.*/site-packages')
    for module in _LIBVIRT.glob('libvirt*'):
        link = site / module.name
        if not link.is_symlink():
            link.symlink_to(module)
    if not (site / 'base.pth').exists():
        (site / 'base.pth').write_text(f'{below}\n')
