# SPDX-License-Identifier: Apache-2.0
"""cinder-backup in a node; a test that needs it starts it."""
from __future__ import annotations

import pathlib

from lab import config
from lab.daemon import Daemon
from lab.database import CINDER
from lab.node import Node
from lab.processes import wait_for
from lab.volume import CONF

_CONF = '/etc/cinder/backup.conf'
_STORE = '/var/lib/cinder/backup'
# The node's own disk is small, and a directory of the host belongs to root.
_MOUNT = f'''
set -e
modprobe loop
if [ ! -e "$1" ]; then
    truncate -s 20G "$1"
    mkfs.ext4 -q "$1"
fi
install -d {_STORE}
mountpoint -q {_STORE} || mount -o loop "$1" {_STORE}
chown cinder:cinder {_STORE}
'''
# A node has little memory for what is read at once.
_CHUNK = 8 << 20
# It says so each time it tells the scheduler whether its store works.
_TOLD = 'Notifying Schedulers of capabilities'
_TELL_SECONDS = 10


class BackupService(Daemon):
    """cinder-backup of one node, with a store of files.

    Without a ``zone`` it has an availability zone of its own, the node's
    name: a backup can be asked for by one node. cinder-volume is there
    already.
    """

    program = 'cinder-backup'
    home = '/var/lib/cinder'
    up = 'Cleaning up incomplete backup operations'

    def __init__(self, node: Node, venv: pathlib.Path,
                 zone: str | None = None) -> None:
        super().__init__(node, venv)
        self._zone = zone or node.name
        self._image = node.directory / 'backups.img'

    def install(self) -> None:
        self._node.write(_CONF, config.text({
            # It needs more rights than cinder-volume has there.
            'database': {'connection': CINDER},
            'DEFAULT': {
                'backup_driver':
                    'cinder.backup.drivers.posix.PosixBackupDriver',
                'backup_posix_path': _STORE,
                'backup_file_size': _CHUNK,
                'backup_compression_algorithm': 'none',
                'backup_driver_stats_polling_interval': _TELL_SECONDS,
                'periodic_fuzzy_delay': 0,
                'default_log_levels': 'cinder.manager=DEBUG,amqp=WARN,'
                                      'oslo.messaging=INFO,os_brick=INFO',
                'storage_availability_zone': self._zone}}))

    def prepare(self) -> None:
        self._node.run(['sh', '-c', _MOUNT, 'sh', str(self._image)])

    def stop(self) -> None:
        super().stop()
        self._node.run(f'umount {_STORE}')

    def wait_up(self, timeout: float = 600) -> None:
        super().wait_up(timeout)
        # The first time comes before anybody has looked at the store.
        wait_for(f'{self.title} to be known',
                 lambda: self.new_log().count(_TOLD) > 1, timeout, 0.5)

    def command(self) -> list[str]:
        return ['setpriv', '--reuid', 'cinder', '--regid', 'cinder',
                '--init-groups', f'{self._venv}/bin/cinder-backup',
                '--config-file', CONF, '--config-file', _CONF]
