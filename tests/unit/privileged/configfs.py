# SPDX-License-Identifier: Apache-2.0
"""The part of the kernel that answers under /sys/kernel/config/target.

Real directories in a temporary place; making one fills it like the kernel
does, removing one that is in use is refused like the kernel does. rtslib
runs on it unchanged.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pathlib
import tempfile
import typing
from unittest import mock

import fixtures

from cinder_dmclone import privileged

_SERIAL = 'T10 VPD Unit Serial Number: '


Parts = tuple[str, ...]


class Died(BaseException):
    """The daemon was killed."""


class Configfs(fixtures.Fixture):
    """
    :ivar events: every change, as (verb, path below the root)
    :ivar die_after: let no more than that many changes happen
    """

    def _setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name) / 'target'
        self.events: list[tuple[str, str]] = []
        self.die_after: int | None = None
        self.devices: dict[str, tuple[int, int]] = {}
        self._made: set[pathlib.Path] = set()
        self._controls: dict[pathlib.Path, dict[str, str]] = {}
        self._real: dict[str, typing.Callable[..., None]] = {
            name: getattr(os, name) for name in ('mkdir', 'rmdir')}
        self._write_text = pathlib.Path.write_text
        for path in ('core/alua', 'iscsi/discovery_auth'):
            (self.root / path).mkdir(parents=True)
        self._patch('os.mkdir', self._mkdir)
        self._patch('os.rmdir', self._rmdir)
        self._patch('os.symlink', self._symlinked(os.symlink))
        self._patch('pathlib.Path.write_text',
                    lambda path, text, *_args: self._written(path, text))
        # What rtslib writes with before 2.2.
        self._patch('rtslib_fb.utils.open', self._open, create=True)
        self._patch('rtslib_fb.tcm.get_blockdev_type', lambda _dev: 0)
        self._patch('rtslib_fb.tcm.is_dev_in_use', self._claimed)
        # Asks for the mount of the real configfs.
        self._patch('rtslib_fb.tcm.StorageObject._config_pr_aptpl',
                    lambda _self: None)
        self._patch('rtslib_fb.tcm.StorageObject._gen_attached_luns',
                    lambda _self: iter(()))
        self._patch('rtslib_fb.node.CFSNode.configfs_dir', str(self.root))
        self._patch('cinder_dmclone.privileged.lio.CONFIGFS', self.root)
        self._patch('cinder_dmclone.privileged.lio._devnum', self._devnum)
        self._patch('cinder_dmclone.privileged.nodes.ready', self._devnum)
        privileged.context.set_client_mode(False)
        self.addCleanup(privileged.context.set_client_mode, True)

    def tree(self) -> dict[str, str | None]:
        """Every file, link and directory with its content."""
        found: dict[str, str | None] = {}
        for path in sorted(self.root.rglob('*')):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                # Links have random names.
                name = str(path.parent.relative_to(self.root) / '*')
                found[name] = os.readlink(path)
            elif path.is_file():
                found[name] = path.read_text()
            else:
                found[name] = None
        return found

    def set(self, path: str, text: str) -> None:
        """Change a file as somebody else would."""
        self._write_text(self.root / path, text)

    def _patch(self, name: str, value: object, **more: typing.Any) -> None:
        patcher = mock.patch(name, value, **more)
        patcher.start()
        self.addCleanup(patcher.stop)

    def _parts(self, path: str | pathlib.Path) -> Parts | None:
        try:
            return pathlib.Path(path).relative_to(self.root).parts
        except ValueError:
            return None

    def _devnum(self, device: str) -> tuple[int, int]:
        try:
            return self.devices[device]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, 'No such file', device)

    def _claimed(self, device: str) -> bool:
        return any(f'UDEV PATH: {device} ' in path.read_text()
                   for path in self.root.glob('core/*/*/info'))

    def _change(self, verb: str, parts: Parts) -> None:
        if self.die_after is not None \
                and len(self.events) >= self.die_after:
            raise Died
        self.events.append((verb, '/'.join(parts)))

    def _mkdir(self, path: str, mode: int = 0o777,
               **more: typing.Any) -> None:
        parts = self._parts(path)
        if parts is None:
            self._real['mkdir'](path, mode, **more)
            return
        self._change('mkdir', parts)
        self._real['mkdir'](path, mode, **more)
        self._made.add(pathlib.Path(path))
        for name, text in _defaults(parts).items():
            file = pathlib.Path(path) / name
            for parent in reversed(file.relative_to(path).parents[:-1]):
                if not (pathlib.Path(path) / parent).exists():
                    self._real['mkdir'](pathlib.Path(path) / parent)
            if text is None:
                self._real['mkdir'](file)
            else:
                self._write_text(file, text)

    def _rmdir(self, removed: str, **more: typing.Any) -> None:
        path = pathlib.Path(removed)
        parts = self._parts(path)
        if parts is None or not path.is_dir():
            self._real['rmdir'](path, **more)
            return
        if any(path in made.parents for made in self._made) or any(
                entry.is_symlink() for entry in path.iterdir()):
            raise OSError(errno.ENOTEMPTY, 'Directory not empty')
        if any(link.is_symlink() and os.readlink(link) == str(path)
               for link in self.root.rglob('*')):
            raise OSError(errno.EBUSY, 'Device or resource busy')
        self._change('rmdir', parts)
        for folder, folders, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(os.path.join(folder, name))
            for name in folders:
                self._real['rmdir'](os.path.join(folder, name))
        self._real['rmdir'](path)
        self._made.discard(path)

    def _symlinked(self, real: typing.Callable[..., None]
                   ) -> typing.Callable[..., None]:
        def symlink(source: str, target: str, *args: typing.Any,
                    **more: typing.Any) -> None:
            parts = self._parts(target)
            if parts is not None:
                self._change('link', parts)
            real(source, target, *args, **more)
        return symlink

    @contextlib.contextmanager
    def _open(self, path: str, mode: str) -> typing.Iterator[typing.TextIO]:
        if mode == 'r':
            with open(path) as file:
                yield file
        else:
            written = io.StringIO()
            yield written
            self._written(pathlib.Path(path), written.getvalue())

    def _written(self, path: pathlib.Path, text: str) -> int:
        parts = self._parts(path)
        text = text.strip()
        if parts is not None:
            if not path.exists():
                raise FileNotFoundError(errno.ENOENT, 'No such file')
            self._change('write', parts)
            if parts[-1] == 'control':
                key, _equals, value = text.partition('=')
                self._controls.setdefault(path.parent, {})[key] = value
            elif parts[0] == 'core' and parts[-1] == 'enable':
                self._enable(path.parent)
            elif parts[-1] == 'vpd_unit_serial':
                text = _SERIAL + text
        return self._write_text(path, text)

    def _enable(self, storage: pathlib.Path) -> None:
        control = self._controls[storage]
        device = control['udev_path']
        major, minor = self._devnum(device)
        self._write_text(
            storage / 'info',
            f'Status: ACTIVATED  SectorSize: 512\n'
            f'        iBlock device: dm-{minor}  UDEV PATH: {device} '
            f'readonly: {control["readonly"]}  exclusive: 1\n'
            f'        Major: {major} Minor: {minor}  CLAIMED: IBLOCK')


def _defaults(parts: Parts) -> dict[str, str | None]:
    """What the kernel puts into a new directory; None is a directory."""
    if parts[0] == 'core':
        if len(parts) == 2:
            return {'hba_info': 'HBA Index: 1'}
        return {'enable': '0', 'udev_path': '', 'control': '',
                'info': 'Status: DEACTIVATED', 'alua/default_tg_pt_gp': None,
                'wwn/vpd_unit_serial': _SERIAL,
                'attrib/emulate_model_alias': '0',
                'attrib/emulate_tpu': '1', 'attrib/emulate_tpws': '1'}
    if len(parts) == 3:
        return {'enable': '0', 'lun': None, 'acls': None, 'np': None,
                'attrib/authentication': '1',
                'attrib/generate_node_acls': '0',
                'attrib/demo_mode_write_protect': '1',
                'attrib/demo_mode_discovery': '1'}
    if len(parts) == 5 and parts[3] == 'acls':
        return {'info': 'No active iSCSI Session for Initiator',
                'auth/userid': '', 'auth/password': ''}
    if len(parts) == 5 and parts[3] == 'np':
        return {'iser': '0'}
    if len(parts) == 6 and parts[3] == 'acls':
        return {'write_protect': '0'}
    return {}
