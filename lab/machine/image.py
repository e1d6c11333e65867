# SPDX-License-Identifier: Apache-2.0
"""The disk of a stock Debian, made once and kept in the lab's cache."""
from __future__ import annotations

import dataclasses
import pathlib
import shutil
import sys
import tempfile

from lab import install
from lab.errors import CommandError, LabError
from lab.processes import run
from lab.virtualenv import CHECKOUT

SUITE = 'bookworm'
SERIES = '6.1'
# Where Cinder is in it.
VENV = pathlib.Path('/opt/cinder')
# What makes it, and runs it.
HOST_PACKAGES = ('debian-archive-keyring', 'e2fsprogs', 'mmdebstrap',
                 'qemu-system-x86', 'qemu-utils', 'seabios')
# The neighbours: bcache-tools, multipath-tools, udisks2 with its module for
# LVM. Of the rest the kernel's source goes again when dm-clone is built.
_PACKAGES = (
    'bcache-tools', 'ca-certificates', 'dbus', 'dkms', 'fio', 'gcc',
    'iproute2', 'kmod', 'linux-headers-amd64', 'linux-image-amd64',
    f'linux-source-{SERIES}', 'lvm2', 'make', 'multipath-tools',
    'open-iscsi', 'procps', 'python3', 'python3-venv', 'sudo',
    'systemd-sysv', 'udev', 'udisks2', 'udisks2-lvm2', 'xz-utils')
_KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'
_SOURCES = f'''\
deb [signed-by={_KEYRING}] http://deb.debian.org/debian {SUITE} main
deb [signed-by={_KEYRING}] http://deb.debian.org/debian-security \
{SUITE}-security main
'''
_HERE = pathlib.Path(__file__).parent
_CERTIFICATES = pathlib.Path('/etc/ssl/certs/ca-certificates.crt')
_GIB = 6


@dataclasses.dataclass(frozen=True)
class Image:
    """What a machine boots.

    :ivar root: a raw file system, which nobody writes to
    """

    root: pathlib.Path
    kernel: pathlib.Path
    initrd: pathlib.Path


def ensure() -> Image:
    """The image; made if it is not there.

    apt verifies the archive's signatures. The sources, lists and packages of
    the machine stay as they are, but for those of HOST_PACKAGES that are
    missing.

    :raises LabError: if it cannot be made; one line
    """
    install.ensure_packages(HOST_PACKAGES)
    directory = install.cache_directory() / f'machine-{_name()}'
    with install.locked(install.cache_directory() / 'machine.lock'):
        if not directory.exists():
            _make(directory)
    return Image(directory / 'root.img', directory / 'vmlinuz',
                 directory / 'initrd.img')


def _name() -> str:
    """Of what it is made from."""
    return install.digest(
        _SOURCES.encode(), ' '.join(_PACKAGES).encode(),
        *(path.read_bytes() for path in _parts()))


def _parts() -> list[pathlib.Path]:
    """Files that become part of it."""
    return [_HERE / 'build', _HERE / 'boot', _requirements(),
            *sorted((CHECKOUT / 'dkms').iterdir()),
            *sorted(_HERE.glob('*.service'))]


def _requirements() -> pathlib.Path:
    return _HERE.parent / 'requirements.txt'


def _make(directory: pathlib.Path) -> None:
    print(f'lab: building a Debian {SUITE} (some minutes)', file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=install.cache_directory()) as name:
        work = pathlib.Path(name)
        tree, made = work / 'tree', work / 'made'
        made.mkdir()
        (work / 'sources.list').write_text(_SOURCES)
        try:
            # What it mounts goes with it, however it ends.
            run('unshare', '--mount', 'mmdebstrap', '--quiet', '--mode=root',
                '--variant=minbase', f'--include={",".join(_PACKAGES)}',
                f'--customize-hook={_copy(work)}',
                '--customize-hook=chroot "$1" sh /build/build',
                '--customize-hook=rm -r "$1/build"',
                SUITE, str(tree), str(work / 'sources.list'), timeout=3600)
        except CommandError as error:
            raise LabError(f'no Debian {SUITE} for a machine: {error}'
                           ) from None
        for name in ('vmlinuz', 'initrd.img'):
            shutil.copy((tree / name).resolve(), made / name)
        run('mke2fs', '-q', '-t', 'ext4', '-d', str(tree),
            str(made / 'root.img'), f'{_GIB}G', timeout=600)
        made.rename(directory)


def _copy(work: pathlib.Path) -> str:
    """A command that puts what build needs into "$1"."""
    parts = work / 'build'
    shutil.copytree(CHECKOUT / 'dkms', parts / 'dkms')
    for path in _parts():
        if path.parent.name != 'dkms':
            shutil.copy(path, parts)
    if _CERTIFICATES.exists():
        # Of whoever stands between this machine and the package index.
        shutil.copy(_CERTIFICATES, parts / 'certificates')
    return f'cp -r {parts} "$1/build"'
