# SPDX-License-Identifier: Apache-2.0
"""Rows that are wrong about an LV, and an operator has them put right."""

from __future__ import annotations

import typing
from unittest import mock

from cinder import rpc

from cinder_dmclone.database import changes
from cinder_dmclone.database import snapshots as records
from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.releases import models
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone import units
from tests.unit import test_adopt

OTHER = test_adopt.OTHER


class RetypedTest(test_adopt.AdoptTestCase):
    """Cinder wrote another host, c, and moved nothing; all nodes work.

    But for cinder-volume of b, which has the volume.
    """

    def setUp(self) -> None:
        super().setUp()
        self.down.clear()
        self.down.add(self.b.name)
        self.c, = self.others
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))
        self.cloud.db.update(self.volume, host='c@dmclone#pool')

    def test_the_row_names_this_node(self) -> None:
        code, lines, err = self.call(yes=False)
        self.assertEqual((0, '', 2), (code, err, len(lines)))
        self.assertEqual(0, self.call()[0])
        self.start()
        self.assert_settled()

    def test_it_hydrates(self) -> None:
        """Others know it by the name that it has."""
        self.cloud.db.update(self.volume, host=f'{self.b.name}#pool')
        self.cloud.attach(self.volume, self.c)
        self.c.process.loop.run_once(everything=True)
        real = self.cloud.row(self.volume)
        self.assertIsNotNone(real.source)
        self.cloud.db.update(self.volume, host=f'{self.a.name}#pool')
        self.down.add(self.c.name)
        code, _, err = self.call(real.lv, node=self.c)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual(real.owner, self.cloud.row(self.volume).owner)
        self.assertEqual(real.provider_id,
                         self.cloud.row(self.volume).provider_id)

    def test_a_node_that_does_not_answer(self) -> None:
        self.c.kill()
        self.assert_refused('cinder-volume works on c@dmclone')

    def test_a_node_that_has_such_an_lv(self) -> None:
        self.c.group.create(names.data_lv(self.copy),
                            units.Bytes.from_gib(1), [])
        self.c.group.flush()
        self.assert_refused('cinder-volume works on c@dmclone')

    def test_its_server_is_live_migrated(self) -> None:
        self.cloud.db.update(self.volume,
                             provider_id=f'2;offer=a@dmclone/{OTHER}')
        self.assert_refused('others know it as one of c@dmclone')


class RivalTest(test_adopt.AdoptTestCase):
    """The rows of two volumes name one LV of b."""

    def setUp(self) -> None:
        super().setUp()
        self.other = VolumeId('0a0a0a0a-0000-4000-8000-000000000000')
        self.claim()

    def claim(self, **values: typing.Any) -> None:
        self.cloud.db.volume(self.other, f'{self.b.name}#pool', **{
            'status': 'available', 'provider_id': '2',
            '_name_id': self.copy, **values})

    def test_a_plan_changes_nothing(self) -> None:
        rows = self.cloud.db.all(models.Volume)
        code, lines, err = self.call(yes=False)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([
            f'Volume {self.other} is nowhere: its row says b@dmclone/'
            f'{self.copy}, which is volume {self.volume}. If another LV is '
            f'volume {self.other}, "cinder-dmclone adopt" that on its node '
            'afterwards; if none is, delete the volume.',
            f'gives up: what the row of volume {self.other} says: 2',
            'Nothing was changed. With --yes it is done.'], lines)
        self.assertEqual(rows, self.cloud.db.all(models.Volume))

    def test_what_the_tags_say_stays(self) -> None:
        self.assertEqual(0, self.call()[0])
        self.assertEqual(self.real, self.cloud.row(self.volume))
        self.assertNotEqual(self.copy, self.cloud.row(self.other).lv)
        self.assert_refused('it is volume')
        self.start()
        self.cloud.attach(self.volume, self.b)

    def test_one_that_is_nowhere_is_deleted(self) -> None:
        self.call()
        self.start()
        self.cloud.delete(self.other)
        self.cloud.settle()
        self.assert_settled()

    def test_the_lv_of_the_other_is_adopted(self) -> None:
        """The node that has it says so."""
        tag = lv_tags.print_tag(lv_tags.OwnTag(1, self.other))
        self.a.group.create(names.data_lv(OTHER), units.Bytes.from_gib(1),
                            [tag])
        self.a.group.flush()
        self.assert_refused('has generation 1 of the volume, the row 2',
                            lv=OTHER, node=self.a)
        self.call()
        self.assertEqual(0, self.call(OTHER, node=self.a)[0])
        self.assertEqual(Location(self.a.name, OTHER),
                         self.cloud.row(self.other).owner)

    def test_an_lv_that_is_none_of_them(self) -> None:
        """Nothing says whose it is."""
        lv = self.b.group.volumes[names.data_lv(self.copy)]
        self.b.group.retag(
            names.data_lv(self.copy), remove=list(lv.tags),
            add=[lv_tags.print_tag(lv_tags.OwnTag(2, VolumeId(OTHER)))])
        self.b.group.flush()
        self.assert_refused('several volumes claim it')

    def test_somebody_uses_it(self) -> None:
        front = names.front(self.b.host, self.copy)
        with mock.patch.object(state.Stack, 'of_kind',
                               lambda stack, *kinds: [front]), (
                mock.patch.object(state.Stack, 'is_held',
                                  return_value=True)):
            self.assert_refused(f'{front} is in use, and volumes .* claim it')

    def test_something_works_on_the_other(self) -> None:
        self.cloud.db.update(self.other, migration_status='migrating')
        before = self.cloud.db.all(models.Volume)
        code, _, err = self.call()
        self.assertEqual((1, before), (code, self.cloud.db.all(models.Volume)))
        self.assertIn('its migration status is migrating', err)

    def test_its_lender_works(self) -> None:
        self.cloud.db.update(self.other,
                             provider_id=f'2;from=c@dmclone/{OTHER}')
        self.down.remove('c@dmclone')
        self.assert_refused('cinder-volume works on c@dmclone')

    def test_an_answer_that_is_lost(self) -> None:
        real = volumes.RowStore._update

        def lost(*arguments: typing.Any, **named: typing.Any) -> int:
            real(*arguments, **named)
            raise exceptions.DatabaseAway(volume=self.other, reason='gone')
        with mock.patch.object(volumes.RowStore, '_update', lost):
            self.call()
        self.assert_refused('it is volume')


class SnapshotTest(test_adopt.AdoptTestCase):
    """The volume on b has a snapshot, of which the row says otherwise."""

    def setUp(self) -> None:
        super().setUp()
        self.snapshot = self.cloud.db.snapshot(self.volume, 'creating')
        snapshots.create(self.b.service, self.volume, self.snapshot)
        self.says(f'1;at=c@dmclone/{OTHER}', 'available')

    def says(self, record: str | None, status: str) -> None:
        self.cloud.db.update_snapshot(self.snapshot, provider_id=record,
                                      status=status)

    def found(self) -> records.SnapshotRow:
        row = records.SnapshotStore().get(self.snapshot)
        assert row is not None
        return row

    def test_a_plan_changes_nothing(self) -> None:
        code, lines, err = self.call(yes=False)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([
            f'Snapshot {self.snapshot} becomes b@dmclone/{self.copy}. The row '
            f'says c@dmclone/{OTHER}.',
            f'gives up: what c@dmclone/{OTHER} has of it',
            'Nothing was changed. With --yes it is done.'], lines)
        self.assertEqual(f'c@dmclone/{OTHER}', str(self.found().at))

    def test_its_row_names_the_lv(self) -> None:
        for record in (f'1;at=c@dmclone/{OTHER}', None):
            with self.subTest(record):
                self.says(record, 'available')
                self.assertEqual(0, self.call()[0])
                self.assertEqual(f'1;at=b@dmclone/{self.copy}',
                                 self.found().provider_id)
                self.assert_refused('it is volume')

    def test_a_node_that_works_and_does_not_have_it(self) -> None:
        self.down.clear()
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))
        self.assertEqual(0, self.call()[0])

    def test_a_node_that_works_and_has_it(self) -> None:
        self.down.clear()
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))
        self.others[0].group.create(names.data_lv(OTHER),
                                    units.Bytes.from_gib(1), [])
        self.others[0].group.flush()
        self.assert_refused('cinder-volume works on c@dmclone')

    def test_what_cannot_be_one_is_left_to_the_driver(self) -> None:
        for status in ('error', 'deleting'):
            self.says(None, status)
            with self.subTest(status):
                self.assert_refused('it is volume')

    def test_what_is_overwritten_is_none(self) -> None:
        """The snapshot had moved, and that node is lost as well."""
        self.b.group.retag(names.data_lv(self.copy), add=[
            lv_tags.print_tag(lv_tags.ErasedTag(self.volume))])
        self.b.group.flush()
        self.assert_refused('what it held may be overwritten in part')

    def test_somebody_was_faster(self) -> None:
        real = records.SnapshotStore.adopt

        def late(store: records.SnapshotStore, row: typing.Any,
                 at: Location) -> None:
            self.says('0', 'available')
            real(store, row, at)
        with mock.patch.object(records.SnapshotStore, 'adopt', late):
            code, _, err = self.call()
        self.assertEqual((1, '0'), (code, self.found().provider_id))
        self.assertIn('is no longer as it was found', err)

    def test_an_answer_that_is_lost(self) -> None:
        real = records.SnapshotStore._update

        def lost(store: records.SnapshotStore, change: typing.Any) -> int:
            real(store, change)
            raise changes.AWAY[0](Exception('gone'))
        with mock.patch.object(records.SnapshotStore, '_update', lost):
            self.assertEqual(0, self.call()[0])
        self.assert_refused('it is volume')
