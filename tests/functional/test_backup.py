# SPDX-License-Identifier: Apache-2.0
"""Backups by a real cinder-backup, and what is restored from them."""
from __future__ import annotations

import copy
import typing

from lab import RestError, look
from lab.backup import BackupService
from tests.functional import base
from tests.functional import environment
from tests.functional import test_snapshots

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = environment.GIB // 4096


class BackupTestCase(test_snapshots.SnapshotTestCase):
    """Every block of what is restored is compared."""

    def serve(self, node: LabNode) -> BackupService:
        """Have backups made on a node, until the test ends."""
        service = BackupService(node, self.lab.venv)
        before = self._reports(node)
        service.install()
        service.start(wait=True)
        self.addCleanup(service.stop)
        # It listens before it reports.
        self.wait(f'{service.title} to report',
                  lambda: self._reports(node) > before)
        return service

    def _reports(self, node: LabNode) -> int:
        (found,), = self.lab.sql(
            'select ifnull(max(report_count), 0) from services where '
            f"deleted = 0 and topic = 'cinder-backup' and host = "
            f"'{node.name}'")
        return int(found)

    def begin(self, volume: str, node: LabNode, **more: typing.Any) -> str:
        """Ask a node for a backup, whoever uses the volume; its id."""
        backup = str(self.lab.cinder('POST', '/backups', {'backup': {
            'volume_id': volume, 'availability_zone': node.name,
            'force': True, **more}})['backup']['id'])
        self.addCleanup(self._delete, backup)
        return backup

    def backup(self, volume: str, node: LabNode, **more: typing.Any) -> str:
        """A backup that a node has made; its id."""
        backup = self.begin(volume, node, **more)
        self._wait_backup(backup)
        return backup

    def _wait_backup(self, backup: str) -> None:
        self.wait(f'backup {backup}',
                  lambda: self._backup(backup)['status'] == 'available')

    def _backup(self, backup: str) -> dict[str, typing.Any]:
        found = self.lab.cinder('GET', f'/backups/{backup}')['backup']
        self.assertNotIn('error', found['status'], found)
        return dict(found)

    def _delete(self, backup: str) -> None:
        self.lab.cinder('DELETE', f'/backups/{backup}')
        self.wait(f'end of backup {backup}', lambda: self._gone(backup))

    def _gone(self, backup: str) -> bool:
        try:
            self.lab.cinder('GET', f'/backups/{backup}')
        except RestError as error:
            return error.status == 404
        return False

    def restore_to(self, backup: str, volume: str) -> None:
        """Write what a backup has over a volume."""
        self.lab.cinder('POST', f'/backups/{backup}/restore', {
            'restore': {'volume_id': volume}})
        self.lab.wait_volume(volume, 'available')
        self._wait_backup(backup)

    def assert_restored(self, backup: str, image: base.Image, node: LabNode,
                        size: int | None = None) -> None:
        """A volume of a node has this after a restoration."""
        volume = self.volume(node)
        self.restore_to(backup, volume)
        at = self.attach(volume, node)
        self.assertEqual('', image.difference(at, size=size))
        self.detach(at)

    def views(self, node: LabNode) -> list[str]:
        return [name for name in look.devices(node)
                if name.startswith('dmclone-view-')]


class BackupTest(BackupTestCase):

    @environment.only_long
    def test_at_rest(self) -> None:
        """Of a volume that is a snapshot, too: it stays where it is."""
        self.serve(self.node1)
        volume, image = self.filled(self.node1)
        self.snapshot(volume)
        before = self.row(volume)
        backup = self.backup(volume, self.node1)
        self.assertEqual(before, self.row(volume))
        self.assertEqual([], self.views(self.node1))
        # What is written is another LV from now on.
        at = self.attach(volume, self.node1)
        image_now = copy.deepcopy(image)
        image_now.write(at, 5, 40, BLOCKS // 41)
        self.detach(at)
        self.restore_to(backup, volume)
        self.assert_holds(image, self.attach(volume, self.node1))

    @environment.only_long
    def test_elsewhere(self) -> None:
        """Over iSCSI, which the volume is not served by otherwise."""
        self.serve(self.node2)
        volume, image = self.filled(self.node1)
        self.snapshot(volume)
        before = self.row(volume)
        backup = self.backup(volume, self.node2)
        self.assertEqual(before, self.row(volume))
        self.assertEqual([], self.views(self.node1))
        self.assert_restored(backup, image, self.node1)

    @environment.only_long
    def test_of_a_volume_that_hydrates(self) -> None:
        """Where it is, and by its lender."""
        self.serve(self.node1)
        self.serve(self.node2)
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 3, 40, BLOCKS // 41)
        self.detach(at)
        backups = [self.backup(volume, node)
                   for node in (self.node1, self.node2)]
        self.assertIn(';from=', self.row(volume).provider_id)
        self.release(at, self.node1)
        for backup in backups:
            self.assert_restored(backup, image, self.node1)

    @environment.only_long
    def test_of_a_volume_that_is_written(self) -> None:
        """It has what was written before, and its server notices nothing."""
        self.serve(self.node2)
        volume, image = self.filled(self.node1)
        at = self.attach(volume, self.node1)
        image.write(at, 7, 24, BLOCKS // 25)
        then = copy.deepcopy(image)
        backup = self.written(at, image,
                              lambda: self.backup(volume, self.node2))
        image.write(at, 7, 24, BLOCKS // 25)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.assert_restored(backup, then, self.node2,
                             size=test_snapshots.AWAY * 4096)

    @environment.only_long
    def test_of_a_snapshot_that_the_volume_has_left(self) -> None:
        self.serve(self.node1)
        self.serve(self.node2)
        volume, image = self.filled(self.node1)
        then = copy.deepcopy(image)
        snapshot = self.snapshot(volume)
        at = self.attach(volume, self.node2)
        image.write(at, 3, 40, BLOCKS // 41)
        for node in (self.node1, self.node2):
            backup = self.backup(volume, node, snapshot_id=snapshot)
            self.assert_restored(backup, then, node)
        self.assert_holds(image, at)
        self.wait_complete(volume)

    @environment.only_long
    def test_cinder_backup_is_killed(self) -> None:
        """What it read through goes by itself; the volume can be used."""
        service = self.serve(self.node1)
        volume, image = self.filled(self.node1)
        backup = self.begin(volume, self.node1)
        self.wait('a view', lambda: self.views(self.node1))
        service.kill()
        self.assertEqual('creating', self._backup(backup)['status'])
        service.start(wait=True)
        self.lab.wait_volume(volume, 'available')
        self.wait('the end of the view', lambda: not self.views(self.node1))
        self.assert_holds(image, self.attach(volume, self.node2))
