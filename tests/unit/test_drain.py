# SPDX-License-Identifier: Apache-2.0
"""A node is drained: what moves, what is waited for, what stays and why."""

from __future__ import annotations

import argparse
import contextlib
import io
import typing
from unittest import mock

from cinder import rpc
import sqlalchemy as sa

from cinder_dmclone.cli import drain
from cinder_dmclone.cli import remains
from cinder_dmclone.cli.remains import Fate
from cinder_dmclone.database import changes
from cinder_dmclone.database import volumes
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.releases import models
from cinder_dmclone.service import births
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import database
from tests.unit.fake import ports
from tests.unit.service import operators

# More would be one that never ends.
LOOKS = 100
OTHER = '07e40000-0000-4000-8000-000000000000'


class DrainTestCase(operators.OperatorTestCase):
    """Node a is drained; b and c are in its availability zone."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))
        self.change_services(availability_zone='nova')
        self.readers: list[int] = []
        self.enterContext(mock.patch.object(
            self.cloud.clock, 'sleep', self.sleep))

    def change_services(self, host: str = '', **values: typing.Any) -> None:
        table = models.Service.__table__
        with database.engine().begin() as connection:
            connection.execute(sa.update(table).where(
                table.c.host.contains(host)).values(**values))

    def sleep(self, seconds: float) -> None:
        """While the command sleeps all nodes work."""
        self.cloud.clock.now += seconds
        if seconds == drain.SECONDS:
            self.readers.append(sum(
                bool(item.reader)
                for item in remains.look(self.a.process.world)))
            self.assertLess(len(self.readers), LOOKS)
            self.cloud.tick()

    def call(self, yes: bool = True, parallel: int = 2,
             backends: typing.Sequence[cloud.Node] = ()
             ) -> tuple[int, list[str], str]:
        out, err = io.StringIO(), io.StringIO()
        arguments = argparse.Namespace(command='drain', yes=yes,
                                       parallel=parallel)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = drain.run(arguments, [
                node.process.world for node in backends or [self.a]])
        return code, out.getvalue().splitlines(), err.getvalue()

    def stays(self) -> dict[str, str]:
        """What stays, and why."""
        return {item.what: item.why
                for item in remains.look(self.a.process.world)
                if item.fate is Fate.STAYS}


class DrainTest(DrainTestCase):

    def test_a_plan_changes_nothing(self) -> None:
        used = self.cloud.create(self.a)
        attachment, _ = self.cloud.attach(used, self.a)
        before = self.state()
        code, lines, err = self.call(yes=False)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([
            'a@dmclone: 1 volumes and 0 snapshots move to other nodes; at '
            'most 2 are read from here at a time.',
            *sorted((f'moves: volume {self.volume}, 1 GiB',
                     f'stays: volume {used}: it has the attachment '
                     f'{attachment} (a); live-migrate its server, or detach '
                     'it'), key=lambda line: line.split()[2][:36]),
            'note: new volumes may be made on a@dmclone meanwhile: openstack '
            'volume service set --disable a@dmclone cinder-volume',
            'Nothing was changed. With --yes it is done.'], lines)
        self.assertEqual(before, self.state())

    def test_a_service_that_is_disabled(self) -> None:
        self.change_services('a@', disabled=True)
        self.assertNotIn('note', ' '.join(self.call(yes=False)[1]))

    def test_all_has_moved(self) -> None:
        volumes = [self.volume, *(self.cloud.create(self.a)
                                  for _ in range(4))]
        code, lines, err = self.call()
        self.assertEqual((0, ''), (code, err))
        self.assertEqual('a@dmclone has nothing any more: it may be switched '
                         'off, and removed.', lines[-1])
        self.assertEqual({}, self.a.group.volumes)
        self.assertEqual(5, len([line for line in lines
                                 if line.startswith('moved: ')]))
        self.assertTrue([line for line in lines if line.endswith(
            'hydrates from it') and line.startswith('waits: LV ')])
        for volume in volumes:
            row = self.cloud.row(volume)
            self.assertEqual((None, None), (row.source, row.offer))
            self.assertEqual(('available', 'success'),
                             (row.status, row.migration_status))
        # Never more than that at a time.
        self.assertEqual(2, max(self.readers))
        home = self.cloud.home(self.volume)
        lv = home.group.volumes[names.data_lv(self.cloud.row(self.volume).lv)]
        self.assertEqual(base.DATA, [lv.read(r) for r in range(base.REGIONS)])

    def test_one_at_a_time(self) -> None:
        self.cloud.create(self.a)
        self.call(parallel=1)
        self.assertEqual({0, 1}, {*self.readers, 0})
        self.assertEqual({}, self.a.group.volumes)

    def test_stopped_and_run_again(self) -> None:
        self.cloud.create(self.a)
        with mock.patch.object(drain.Drain, '_tell',
                               side_effect=KeyboardInterrupt):
            code, _, err = self.call(parallel=1)
        self.assertEqual((2, 'cinder-dmclone: stopped; run it again, what '
                          'has moved is not here any more\n'), (code, err))
        self.assertEqual(0, self.call()[0])
        self.assertEqual({}, self.a.group.volumes)

    def test_the_node_with_most_room(self) -> None:
        self.cloud.create(self.b, gib=2)
        self.call()
        self.assertEqual('c@dmclone', self.cloud.row(self.volume).node)

    def test_nodes_that_take_no_volumes(self) -> None:
        self.cloud.create(self.b, gib=2)
        for values in ({'disabled': True}, {'availability_zone': 'other'}):
            with self.subTest(values):
                self.change_services(disabled=False, availability_zone='nova')
                self.change_services('c@', **values)
                self.assertEqual(
                    ['b@dmclone'], self.a.process.world.peers.taking_in(
                        self.a.name, 5))
        self.change_services('b@', disabled=True)
        code, lines, _ = self.call()
        self.assertEqual(1, code)
        self.assertIn(
            'no other node of this availability zone is up and enabled',
            lines[-2])
        self.assertEqual('No other node needs a@dmclone. What stays is away '
                         'while it is off.', lines[-1])
        self.assertEqual(('available', None), (
            self.cloud.row(self.volume).status,
            self.cloud.row(self.volume).migration_status))

    def test_nobody_has_room(self) -> None:
        for node in (self.b, self.c):
            self.cloud.create(node, gib=100 - 1)
        code, lines, err = self.call()
        self.assertEqual(1, code)
        self.assertRegex(lines[-2], f'^stays: volume {self.volume}: .* '
                         'has not enough room')

    @property
    def c(self) -> cloud.Node:
        return self.others[0]

    def test_a_volume_that_hydrates_moves_afterwards(self) -> None:
        volume = self.cloud.create(self.b)
        attachment, _ = self.cloud.attach(volume, self.a)
        self.cloud.detach(volume, attachment, self.a)
        code, lines, _ = self.call(yes=False)
        self.assertIn(f'waits: volume {volume}: it hydrates from b@dmclone/'
                      f'{volume}', lines)
        self.assertEqual(0, self.call()[0])
        self.assertNotEqual('a@dmclone', self.cloud.row(volume).node)

    def test_one_whose_lender_is_down(self) -> None:
        volume = self.cloud.create(self.b)
        attachment, _ = self.cloud.attach(volume, self.a)
        self.cloud.detach(volume, attachment, self.a)
        self.lose(self.b)
        self.assertEqual(f'it hydrates from b@dmclone/{volume}, which is '
                         'down: start it', self.stays()[f'volume {volume}'])

    def test_a_borrower_that_is_down(self) -> None:
        """What it needs is still here: the node has to stay on."""
        self.cloud.attach(self.volume, self.b)
        self.lose(self.b)
        code, lines, _ = self.call()
        self.assertEqual(1, code)
        self.assertEqual([
            f'stays: LV volume-{self.lv}: volume {self.volume} needs it on '
            'b@dmclone, which is down: start it; if it is lost, see the page '
            '"Failures"',
            'a@dmclone has to stay on: other nodes need what it has.'],
            lines[-2:])

    def test_borrowers_that_are_down_keep_nobody_waiting(self) -> None:
        """As many as may read at a time: none of them does."""
        needed = [self.volume, self.cloud.create(self.a)]
        for volume in needed:
            self.cloud.attach(volume, self.b)
        self.lose(self.b)
        free = self.cloud.create(self.a)
        code, lines, _ = self.call()
        self.assertEqual(1, code)
        self.assertEqual('c@dmclone', self.cloud.row(free).node)
        self.assertEqual([
            *(f'stays: LV volume-{volume}: volume {volume} needs it on '
              'b@dmclone, which is down: start it; if it is lost, see the '
              'page "Failures"' for volume in sorted(needed)),
            'a@dmclone has to stay on: other nodes need what it has.'],
            lines[-3:])

    def test_a_borrower_that_was_installed_anew(self) -> None:
        """It works, and will never have what it borrowed."""
        self.cloud.attach(self.volume, self.b)
        row = self.cloud.row(self.volume)
        self.reinstall(self.b)
        free = self.cloud.create(self.a)
        code, lines, _ = self.call(parallel=1)
        self.assertEqual(1, code)
        self.assertNotEqual('a@dmclone', self.cloud.row(free).node)
        self.assertEqual([
            f'stays: LV volume-{self.lv}: {row.owner} is missing; this copy '
            'is kept; see the page "Failures"',
            'No other node needs a@dmclone. What stays is away while it is '
            'off.'], lines[-2:])

    def test_a_lender_that_was_installed_anew(self) -> None:
        volume = self.cloud.create(self.b)
        attachment, _ = self.cloud.attach(volume, self.a)
        self.cloud.detach(volume, attachment, self.a)
        self.reinstall(self.b)
        self.assertEqual(
            f'it hydrates from b@dmclone/{volume}, which is lost: see the '
            'page "Failures"', self.stays()[f'volume {volume}'])

    def reinstall(self, node: cloud.Node) -> None:
        node.lose_power()
        node.group.volumes.clear()
        node.group._durable.clear()
        node.group.uuid = GroupUuid('anew')
        node.start()

    def test_a_loan_of_which_the_row_knows_nothing(self) -> None:
        """The volume may be newer elsewhere; it is not waited for."""
        tag = lv_tags.LoanTag(
            2, self.volume, self.b.name, LvUuid(OTHER), GroupUuid('another'),
            'iqn.b', units.Bytes.from_gib(1))
        self.a.group.retag(names.data_lv(self.lv),
                           add=[lv_tags.print_tag(tag)])
        self.a.group.flush()
        code, lines, _ = self.call()
        self.assertEqual(1, code)
        self.assertIn('and may have newer data', lines[-2])
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)

    def test_a_node_that_does_not_answer_is_waited_for(self) -> None:
        """It reports in: it may need what it borrowed."""
        self.cloud.attach(self.volume, self.b)
        self.fates('Show', ports.Fate.LOST)
        found = {item.what: item
                 for item in remains.look(self.a.process.world)}
        item = found[f'LV volume-{self.lv}']
        self.assertEqual((Fate.WAITS, self.b.name), (item.fate, item.reader))

    def test_a_clone_elsewhere_is_waited_for(self) -> None:
        clone = self.clone_on(self.b)
        code, lines, err = self.call()
        self.assertEqual((0, ''), (code, err))
        self.assertIn(f'waits: LV volume-{self.lv}: volume {clone} on '
                      'b@dmclone hydrates from it', lines)
        self.assertEqual({}, self.a.group.volumes)

    def clone_on(self, node: cloud.Node) -> VolumeId:
        clone = VolumeId('c10e0000-0000-4000-8000-000000000000')
        self.cloud.db.volume(clone, f'{node.name}#{cloud.POOL}')
        births.clone(node.service, clone, self.volume)
        self.cloud.db.update(clone, status='available')
        return clone

    def test_what_cannot_move(self) -> None:
        for values, why in (
                ({'status': 'error'}, 'its status is error'),
                ({'migration_status': 'migrating'},
                 'its migration status is migrating'),
                ({'group_id': 'x'}, 'it is in a group of Cinder.*'
                 'take it out of the group first'),
                ({'provider_id': 'v2;x'}, 'which this release does not know'),
                ({'_name_id': 'elsewhere'}, 'its LV volume-elsewhere is '
                 'missing here')):
            with self.subTest(values):
                self.cloud.db.update(self.volume, **{
                    'status': 'available', 'migration_status': None,
                    'group_id': None, 'provider_id': '1', '_name_id': None,
                    **values})
                self.assertRegex(self.stays()[f'volume {self.volume}'], why)

    def test_all_volumes_are_asked_about_at_once(self) -> None:
        self.cloud.create(self.a)
        for count, statements in ((2, 1), (changes.AT_ONCE, 1),
                                  (changes.AT_ONCE + 1, 2)):
            world = self.a.process.world
            while len(world.rows.on(self.a.name)) < count:
                self.cloud.create(self.a)
            with self.subTest(count), mock.patch.object(
                    volumes.RowStore, '_hold', autospec=True,
                    side_effect=volumes.RowStore._hold) as hold:
                self.assertEqual(count, len(remains.look(world)))
                self.assertEqual(statements, hold.call_count)

    def test_several_servers(self) -> None:
        self.cloud.db.update(self.volume, multiattach=True)
        self.cloud.attach(self.volume, self.a)
        self.cloud.db.attachment(self.volume, instance_uuid=self.volume)
        self.assertIn('it is one of several servers',
                      self.stays()[f'volume {self.volume}'])

    def test_what_nobody_knows(self) -> None:
        stray = '5a5a5a5a-0000-4000-8000-000000000000'
        own = lv_tags.print_tag(lv_tags.OwnTag(3, VolumeId(stray)))
        self.a.group.create(f'volume-{stray}', units.Bytes.from_gib(1), [own])
        self.assertEqual(
            f'volume {stray} generation 3; see the log of cinder-volume here',
            self.stays()[f'LV volume-{stray}'])

    def test_what_is_being_deleted_is_waited_for(self) -> None:
        self.cloud.delete(self.volume)
        found, = remains.look(self.a.process.world)
        self.assertEqual((Fate.WAITS, 'it is being deleted'),
                         (found.fate, found.why))
        self.assertEqual(0, self.call()[0])

    def test_what_is_about_to_move_here(self) -> None:
        volume = self.cloud.create(self.b)
        self.cloud.attach(volume, self.b)
        self.cloud.migrate(volume, self.a)
        self.assertIn(f'volume {volume} is about to move here',
                      ' '.join(self.stays().values()))

    def test_one_that_came_meanwhile_is_told_at_the_end(self) -> None:
        """Only what the operator has seen moves."""
        tick = self.cloud.tick
        made: list[VolumeId] = []

        def late(regions: int = 3) -> None:
            if not made:
                made.append(self.cloud.create(self.a))
            tick(regions)
        with mock.patch.object(self.cloud, 'tick', late):
            code, lines, _ = self.call()
        self.assertEqual(1, code)
        self.assertEqual(f'stays: volume {made[0]}: it was not here, or in '
                         'use, when this was agreed to: run it again',
                         lines[-2])
