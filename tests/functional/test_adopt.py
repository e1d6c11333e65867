# SPDX-License-Identifier: Apache-2.0
"""The database is restored from a backup, and disks know better."""
from __future__ import annotations

import typing

from lab import look
from tests.functional import base
from tests.functional import environment
from tests.functional.test_recovery import said

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

_COLUMNS = ('host', '_name_id', 'provider_id', 'service_uuid',
            'availability_zone')
_BACKUP = 'backup_of_volumes'


@environment.only_long
class AdoptTest(base.FunctionalTest):

    def back_up(self) -> None:
        self.lab.sql(f'create table {_BACKUP} as select * from volumes')
        self.addCleanup(self.lab.sql, f'drop table {_BACKUP}')

    def restore_backup(self) -> None:
        values = ', '.join(f'volumes.{name} = {_BACKUP}.{name}'
                           for name in _COLUMNS)
        self.lab.sql(f'update volumes join {_BACKUP} using (id) set {values}')

    def adopt(self, node: LabNode, lv: str, code: int,
              *words: str) -> list[str]:
        """What the command prints, or says of why it refuses."""
        found = node.volume.cli('adopt', lv, *words, check=False)
        self.assertEqual(code, found.code, found.stdout + found.stderr)
        return found.stdout.splitlines() if code == 0 else [said(found)]

    def test_the_volume_is_what_the_disks_have(self) -> None:
        volume, image = self.filled(self.node1)
        self.back_up()
        first = self.attach(volume, self.node2)
        self.detach(first)
        self.wait_complete(volume)
        # On the way back it hydrates from node 2, as long as the link is slow.
        at = self.attach_slowly(volume, self.node2, self.node1)
        image.write(at, 3, 20, base.GIB // 4096 // 21)
        self.node1.run('sync')
        self.assert_hydrating(at)
        self.detach(at)
        real = self.row(volume)
        self.assertIn(';from=', real.provider_id)
        self.assertIn('cinder-volume works on node1@dmclone, or another',
                      self.adopt(self.node1, at.lv, 1)[0])
        for node in self.lab.nodes:
            node.volume.stop()
        self.restore_backup()
        old = self.row(volume)
        self.assertEqual('1', old.provider_id)
        plan = self.adopt(self.node1, at.lv, 0)
        self.assertIn(f'Volume {volume} becomes node1@dmclone/{at.lv} '
                      '(generation 3), which hydrates from node2@dmclone/',
                      plan[0])
        self.assertEqual(old, self.row(volume))
        # What it went on from says so, when node 1 counts as down.
        self.assertIn(
            f'gives up: what node1@dmclone/{at.lv} may have of the volume '
            'that is newer', self.wait('node 1 to count as down', lambda: (
                self.node2.volume.cli('adopt', first.lv, check=False).stdout)))
        self.assertEqual(real, self.adopted(at.lv, volume))
        self.start_services(*self.lab.nodes)
        self.release(at, self.node2)
        self.wait_complete(volume)
        self.assert_holds(image, self.attach(volume, self.node1))

    def test_a_volume_that_was_deleted_meanwhile(self) -> None:
        """While the old database was in use, which did not know its LV."""
        volume = self.volume(self.node1)
        self.back_up()
        at = self.attach(volume, self.node2)
        self.detach(at)
        self.wait_complete(volume)
        for node in self.lab.nodes:
            node.volume.stop()
        self.restore_backup()
        self.start_services(*self.lab.nodes)
        self.lab.cinder('DELETE', f'/volumes/{volume}')
        self.wait('the end of the row', lambda: self.lab.sql(
            f"select id from volumes where id = '{volume}' and deleted = 1"))
        self.assertIn('was deleted', self.forced(at.lv))
        plan = self.node2.volume.cli('forget', at.lv).stdout
        self.assertIn('by a database that had gone back in time', plan)
        self.assertIn(f'volume-{at.lv}', look.volumes(self.node2))
        self.node2.volume.cli('forget', at.lv, '--yes')
        self.wait('the end of the LV', lambda: (
            f'volume-{at.lv}' not in look.volumes(self.node2)))

    def forced(self, lv: str) -> str:
        """Why it is not adopted, with cinder-volume stopped."""
        self.node2.volume.stop()
        line, = self.adopt(self.node2, lv, 1, '--yes')
        self.start_services(self.node2)
        return line

    def adopted(self, lv: str, volume: str) -> object:
        """The row, when it says what it said before."""
        self.adopt(self.node1, lv, 0, '--yes')
        self.assertIn('as the row says', self.adopt(self.node1, lv, 1)[0])
        return self.row(volume)
