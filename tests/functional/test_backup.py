# SPDX-License-Identifier: Apache-2.0
"""Backups of volumes, by a cinder-backup on node 2."""
from __future__ import annotations

import typing

from lab.backup import BackupService
from lab.rest import RestError
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = base.GIB // 4096


@environment.only_long
class BackupTest(base.FunctionalTest):
    """What is restored is compared byte for byte."""

    def setUp(self) -> None:
        super().setUp()
        service = BackupService(self.node2, self.lab.venv)
        if not service.running():
            service.install()
            service.start(wait=True)
        self.wait('the service to report', lambda: self.lab.sql(
            "select id from services where `binary` = 'cinder-backup' "
            'and deleted = 0 and report_count > 0'))

    def backup(self, volume: str) -> str:
        """Make a backup of a detached volume; its id."""
        answer = self.lab.cinder('POST', '/backups', {
            'backup': {'volume_id': volume, 'name': self.id()}})
        backup = str(answer['backup']['id'])
        self.addCleanup(self._delete, backup)
        self.wait_backup(backup)
        self.lab.wait_volume(volume, 'available')
        return backup

    def wait_backup(self, backup: str) -> None:
        """Wait until nothing is done with a backup."""
        def shown() -> dict[str, typing.Any]:
            return dict(self.lab.cinder('GET', f'/backups/{backup}')['backup'])
        self.wait(f'backup {backup}', lambda: shown()['status'] not in (
            'creating', 'restoring'), base.LONG_SECONDS)
        found = shown()
        self.assertEqual('available', found['status'], found['fail_reason'])

    def _delete(self, backup: str) -> None:
        self.lab.cinder('DELETE', f'/backups/{backup}')
        self.wait('the end of a backup', lambda: self._gone(backup))

    def _gone(self, backup: str) -> bool:
        try:
            self.lab.cinder('GET', f'/backups/{backup}')
        except RestError as error:
            return error.status == 404
        return False

    def restored(self, backup: str, volume: str | None = None) -> str:
        """Restore a backup, to a new volume if none is given; its id."""
        answer = self.lab.cinder('POST', f'/backups/{backup}/restore', {
            'restore': {'volume_id': volume} if volume else {}})['restore']
        if not volume:
            self.volumes.append(answer['volume_id'])
        self.wait_backup(backup)
        self.lab.wait_volume(answer['volume_id'], 'available')
        return str(answer['volume_id'])

    def home(self, volume: str) -> LabNode:
        """The node of a volume."""
        name = self.row(volume).node
        return next(node for node in self.lab.nodes if node.name == name)

    def test_at_rest(self) -> None:
        volume, image = self.filled(self.node1)
        backup = self.backup(volume)
        copy = self.restored(backup)
        self.assert_holds(image, self.attach(copy, self.home(copy)))
        self.assertEqual('node1', self.row(volume).node)

    def hydrating(self, lender: LabNode, borrower: LabNode) -> None:
        """Back up what is hydrating, and restore it there."""
        volume, image = self.filled(lender)
        at = self.attach_slowly(volume, lender, borrower)
        image.write(at, 3, 40, BLOCKS // 41)
        self.detach(at)
        backup = self.backup(volume)
        at = self.attach(volume, borrower)
        self.image().write(at, 1, 60, BLOCKS // 61)
        self.detach(at)
        self.restored(backup, volume)
        row = self.row(volume)
        self.assertIn(';from=', row.provider_id)
        self.assertEqual(borrower.name, row.node)
        at = self.attach(volume, borrower)
        self.release(at, lender)
        self.assert_holds(image, at)

    def test_hydrating_where_the_service_is(self) -> None:
        self.hydrating(self.node1, self.node2)

    def test_hydrating_elsewhere(self) -> None:
        """The service reads and writes a clone of another node."""
        self.hydrating(self.node2, self.node1)
