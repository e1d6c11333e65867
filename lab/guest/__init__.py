# SPDX-License-Identifier: Apache-2.0
"""A server for the lab: a disk image of some 24 MiB that writes and checks.

    image = guest.build(install.cache_directory())

The image boots by BIOS from a virtio disk of any size, in 128 MB of memory
and without hardware support. Behind the image the disk is the guest's data
area; virtio disks plugged in later are so as a whole, or are mounted if they
have a file system. guest.h says what it does and what it writes on the serial
port, guest.c which keys change that. ``verify.py`` compares a disk with what
the guest said, ``files.py`` a file system.
"""
from __future__ import annotations

import lzma
import pathlib
import struct
import tempfile
from collections.abc import Mapping

from lab import install
from lab.errors import LabError
from lab.processes import run

# Also what makes and checks those file systems that the machine has not.
GUEST_PACKAGES = ('gcc', 'libc6-dev', 'libsqlite3-dev', 'mtools', 'syslinux',
                  'xfsprogs')
# The one for clouds starts faster; what the other is called by Ubuntu.
_KERNELS = ('linux-image-cloud-amd64', 'linux-image-virtual')
# In the order in which they need each other; a kernel may have them built in.
_MODULES = (
    'virtio_ring', 'virtio', 'virtio_pci_legacy_dev',
    'virtio_pci_modern_dev', 'virtio_pci', 'virtio_blk', 'evdev', 'button')
# Loaded when there is a file system. What these ask for by the name of an
# algorithm nobody would load.
_FILE_MODULES = ('crc32c_generic', 'libcrc32c', 'crc16', 'mbcache', 'jbd2',
                 'ext4', 'xfs')
# A slow processor does not pass the check of the timer, and self-tests take it
# long.
_OPTIONS = ('console=ttyS0 quiet no_timer_check cryptomgr.notests nokaslr '
            'mitigations=off')
_BOOT = f"""\
DEFAULT guest
PROMPT 0
LABEL guest
 LINUX vmlinuz
 INITRD initrd
 APPEND {_OPTIONS}
"""
_MBR = pathlib.Path('/usr/lib/SYSLINUX/mbr.bin')
_SIGNATURE = b'DMGD'
_PARTITION_AT = 64
_MIB = 1 << 20
_SECTOR = 512
_FAT16_LBA = 0x0e
_HERE = pathlib.Path(__file__).parent
_SOURCES = tuple(_HERE / name for name in (
    'guest.c', 'disk.c', 'batch.c', 'files.c', 'rows.c', 'format.c'))


def build(cache: pathlib.Path) -> pathlib.Path:
    """The image; made once for each state of the sources.

    :param cache: a directory where it is kept
    :raises LabError: no kernel is offered
    """
    parts = [path.read_bytes() for path in (
        pathlib.Path(__file__), _HERE / 'guest.h', *_SOURCES)]
    image = cache / f'guest-{install.digest(*parts)}.img'
    cache.mkdir(parents=True, exist_ok=True)
    with install.locked(cache / 'guest.lock'):
        if not image.exists():
            with tempfile.TemporaryDirectory(dir=cache) as name:
                _build(pathlib.Path(name)).rename(image)
    return image


def _build(folder: pathlib.Path) -> pathlib.Path:
    kernel = _unpack_kernel(folder)
    program = folder / 'init'
    run('gcc', '-O2', '-Wall', '-static', '-s', '-o', str(program),
        *map(str, _SOURCES), '-lsqlite3', '-lm')
    files = {'init': program.read_bytes()}
    for place, names in (('modules', _MODULES),
                         ('modules/files', _FILE_MODULES)):
        modules = [data for name in names
                   for data in _module(kernel / 'lib/modules', name)]
        for number, data in enumerate(modules):
            files[f'{place}/{number:02}.ko'] = data
    vmlinuz, = (kernel / 'boot').glob('vmlinuz-*')
    vmlinuz.rename(folder / 'vmlinuz')
    (folder / 'initrd').write_bytes(archive(files))
    (folder / 'syslinux.cfg').write_text(_BOOT)
    return _make_disk(folder)


def _unpack_kernel(folder: pathlib.Path) -> pathlib.Path:
    """Unpack the kernel without installing it.

    Its scripts would change how the machine boots.
    """
    for name in _KERNELS:
        depends = run('apt-cache', 'depends', '--important', name,
                      check=False).stdout.split()
        package = next((word for word in depends
                        if word.startswith('linux-image-')
                        and word not in _KERNELS), None)
        if package:
            break
    else:
        raise LabError(f'no kernel for the guest: {" or ".join(_KERNELS)}')
    run('sh', '-c', 'cd "$1" && apt-get download -qq "$2"', 'sh',
        str(folder), package)
    deb, = folder.glob('*.deb')
    run('dpkg-deb', '-x', str(deb), str(folder / 'kernel'))
    return folder / 'kernel'


def _module(modules: pathlib.Path, name: str) -> list[bytes]:
    """The module, or nothing if the kernel has none of that name."""
    for path in modules.rglob(f'{name}.ko*'):
        data = path.read_bytes()
        if path.suffix == '.xz':
            return [lzma.decompress(data)]
        if path.suffix != '.ko':
            raise LabError(f'{path.name}: unknown compression')
        return [data]
    return []


def archive(files: Mapping[str, bytes]) -> bytes:
    """A cpio archive, as a kernel takes it: programs and empty /dev, /sys.

    :param files: contents by path; directories are made as needed
    """
    folders = {'dev', 'sys', *(str(pathlib.PurePath(path).parent)
                               for path in files)} - {'.'}
    entries = [(path, 0o40755, b'') for path in sorted(folders)]
    entries += [(path, 0o100755, data) for path, data in files.items()]
    result = b''
    for number, (path, mode, data) in enumerate(
            [*entries, ('TRAILER!!!', 0, b'')], 1):
        name = path.encode() + b'\0'
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0,
                  len(name), 0)
        head = b'070701' + b''.join(b'%08x' % field for field in fields)
        result += _padded(head + name) + _padded(data)
    return result


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _make_disk(folder: pathlib.Path) -> pathlib.Path:
    """A disk with one bootable FAT partition up to its end.

    What is behind the partition is the data area, if the disk has the
    signature.
    """
    disk = folder / 'disk'
    files = [folder / name for name in ('vmlinuz', 'initrd', 'syslinux.cfg')]
    # The file system and the boot loader need less than 1 MiB.
    size = (sum(path.stat().st_size for path in files) // _MIB + 2) * _MIB
    sectors = size // _SECTOR - _PARTITION_AT
    record = bytearray(_MBR.read_bytes().ljust(_SECTOR, b'\0'))
    record[440:444] = _SIGNATURE
    # Nothing reads the cylinders, heads and sectors of such a partition.
    record[446:462] = struct.pack('<B3sB3sII', 0x80, b'\xfe\xff\xff',
                                  _FAT16_LBA, b'\xfe\xff\xff',
                                  _PARTITION_AT, sectors)
    record[510:] = b'\x55\xaa'
    with disk.open('wb') as file:
        file.write(record)
        file.truncate(size)
    at = _PARTITION_AT * _SECTOR
    target = f'{disk}@@{at}'
    run('mformat', '-i', target, '-T', str(sectors), '-h', '16', '-s', '63',
        '-H', str(_PARTITION_AT), '-c', '8', '::')
    run('mcopy', '-i', target, *map(str, files), '::')
    run('syslinux', '--install', '--offset', str(at), str(disk))
    return disk
