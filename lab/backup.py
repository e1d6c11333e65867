# SPDX-License-Identifier: Apache-2.0
"""cinder-backup in a node, which keeps backups in a directory."""
from __future__ import annotations

import pathlib

from lab import config
from lab.daemon import Daemon
from lab.node import Node

_CONF = '/etc/cinder/backup.conf'


class BackupService(Daemon):
    """cinder-backup of one node, beside its cinder-volume.

    It is root: the directory is one of the machine, where all files are
    root's, because a node has no room for backups.
    """

    program = 'cinder-backup'
    home = '/var/lib/cinder'
    up = 'Cleaning up incomplete backup operations'

    def __init__(self, node: Node, venv: pathlib.Path) -> None:
        super().__init__(node, venv)
        self.directory = node.directory / 'backups'

    def install(self) -> None:
        self.directory.mkdir(exist_ok=True)
        self._node.write(_CONF, config.text({'DEFAULT': {
            'backup_driver':
                'cinder.backup.drivers.posix.PosixBackupDriver',
            'backup_posix_path': self.directory,
            'backup_compression_algorithm': 'none',
            # In bytes; a chunk is in memory as a whole.
            'backup_file_size': 32 << 20}}))

    def command(self) -> list[str]:
        return [f'{self._venv}/bin/cinder-backup', '--config-file',
                '/etc/cinder/cinder.conf', '--config-file', _CONF]
