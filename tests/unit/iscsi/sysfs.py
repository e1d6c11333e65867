# SPDX-License-Identifier: Apache-2.0
"""iSCSI sessions in a temporary directory laid out like /sys."""

import pathlib
import tempfile
from unittest import mock

import fixtures


class Sysfs(fixtures.Fixture):

    def _setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        (self.root / 'class/iscsi_session').mkdir(parents=True)
        patcher = mock.patch('cinder_dmclone.sysfs.sessions.SYSFS', self.root)
        patcher.start()
        self.addCleanup(patcher.stop)

    def add(self, sid: int, iqn: str, state: str = 'LOGGED_IN',
            disk: str | None = 'sda', devnum: str = '8:0',
            device_state: str = 'running', sectors: int = 2048) -> None:
        """A session, with its disk unless ``disk`` is None."""
        device = self.root / f'devices/platform/host{sid}/session{sid}'
        entry = device / f'iscsi_session/session{sid}'
        entry.mkdir(parents=True)
        (entry / 'targetname').write_text(iqn + '\n')
        (entry / 'state').write_text(state + '\n')
        (entry / 'device').symlink_to(device)
        (self.root / f'class/iscsi_session/session{sid}').symlink_to(entry)
        if disk:
            scsi = device / f'target{sid}:0:0/{sid}:0:0:0'
            block = scsi / 'block' / disk
            block.mkdir(parents=True)
            (scsi / 'state').write_text(device_state + '\n')
            (block / 'dev').write_text(devnum + '\n')
            (block / 'device').symlink_to(scsi)
            (block / 'size').write_text(f'{sectors}\n')
            (self.root / 'dev/block').mkdir(parents=True, exist_ok=True)
            number = self.root / 'dev/block' / devnum
            number.unlink(missing_ok=True)
            number.symlink_to(block)

    def set(self, sid: int, state: str) -> None:
        path = self.root / f'class/iscsi_session/session{sid}/state'
        path.write_text(state + '\n')

    def drop(self, sid: int) -> None:
        (self.root / f'class/iscsi_session/session{sid}').unlink()
