# SPDX-License-Identifier: Apache-2.0
"""Nodes whose volumes are thin, beside one whose are not."""

from __future__ import annotations

import dataclasses
import logging
import types
import typing
from unittest import mock
import uuid

from cinder import exception

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone.metrics import collector
from cinder_dmclone import names
from cinder_dmclone import preflight
from cinder_dmclone.relocation import room
from cinder_dmclone.service import births
from cinder_dmclone.service import capacity
from cinder_dmclone.service import manage
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import teardown
from cinder_dmclone import units
from cinder_dmclone import wiring
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.fake import storage

GIB = units.GIB


class ThinCase(base.CloudTestCase):
    """Node b is thin; a, where the volume is, is not."""

    def setUp(self) -> None:
        super().setUp()
        self.b.group.pool = storage.POOL
        self.b.group.pool_size = units.Bytes.from_gib(10)

    def form(self, node: cloud.Node) -> set[tuple[str, str]]:
        """Kind and pool of all LVs of a node."""
        return {(name.partition('-')[0], lv.pool)
                for name, lv in node.group.volumes.items()}

    @property
    def host(self) -> typing.Any:
        return self.b.process.world.host

    def admit(self) -> room.Space:
        return room.admit(self.host, self.b.group.report())

    def free(self) -> int:
        return room.free(self.host, self.b.group.report(),
                         units.Bytes.from_gib(1))


class FormTest(ThinCase):

    def test_a_copy_has_the_form_of_its_node(self) -> None:
        """Its metadata is never thin."""
        self.relocated()
        self.assertEqual({('volume', '')}, self.form(self.a))
        self.assertEqual({('volume', storage.POOL), ('dmclone', '')},
                         self.form(self.b))
        with mock.patch.object(self.b.group, 'zero') as zero:
            self.cloud.settle()
        self.assertEqual({('volume', storage.POOL)}, self.form(self.b))
        # A thick volume may be there next.
        zero.assert_called_once()

    def test_a_new_volume(self) -> None:
        volume = self.cloud.create(self.b)
        self.assertEqual({('volume', storage.POOL)}, self.form(self.b))
        self.assertEqual(self.b.group.size, self.b.group.report().free)
        self.assertEqual(GIB, self.b.group.volumes[
            names.data_lv(self.cloud.row(volume).lv)].size)

    def test_what_is_thin_is_not_overwritten(self) -> None:
        erase = mock.Mock()
        for node, count in ((self.b, 0), (self.a, 1)):
            volume = self.cloud.create(node)
            host = node.process.world.host
            stack = inspect.refresh(host, self.cloud.row(volume).lv)
            teardown.condemn(host, stack)
            self.assertEqual(bool(count), bool(
                inspect.refresh(host, stack.lv).tags.erased))
            teardown.erase(dataclasses.replace(host, erase=erase), stack,
                           lambda: True)
            self.assertEqual(count, erase.call_count)

    def test_nothing_is_left_of_an_attempt_to_make_one(self) -> None:
        """Cinder has it made elsewhere; there is nothing to overwrite."""
        volume = self.cloud.create(self.b)
        lv = names.data_lv(self.cloud.row(volume).lv)
        self.assertIn(lv, self.b.group.volumes)
        self.cloud.db.update(volume, status='creating', host=None)
        volumes.delete(self.b.service, volume)
        self.assertNotIn(lv, self.b.group.volumes)

    def test_what_could_not_be_removed_is_not_overwritten(self) -> None:
        """Nor what is not active: its path may lead to another device."""
        host, erase = self.a.process.world.host, mock.Mock()
        stack = inspect.refresh(
            host, self.cloud.row(self.cloud.create(self.a)).lv)
        assert stack.data
        for error, changed in ((exceptions.DeviceBusy, {'origin': True}),
                               (exceptions.NoSuchDevice, {'devnum': None})):
            data = dataclasses.replace(stack.data, **changed)
            self.assertRaises(error, teardown.erase,
                              dataclasses.replace(host, erase=erase),
                              dataclasses.replace(stack, data=data),
                              lambda: True)
        erase.assert_not_called()

    def test_an_lv_keeps_its_form(self) -> None:
        """Also when its node has another for new ones."""
        volume = self.cloud.create(self.b)
        lv = names.data_lv(self.cloud.row(volume).lv)
        self.b.group.pool = ''
        self.assertEqual(storage.POOL, self.b.group.report().lvs[lv].pool)
        self.assertEqual(self.b.group.size,
                         room.space(self.host, self.b.group.report()).free)

    def test_the_pool_of_a_section(self) -> None:
        config = types.SimpleNamespace(
            volume_group='vg', dmclone_lvm_type='thick',
            dmclone_thin_pool=None)
        self.assertEqual('', wiring._thin_pool(config))
        config.dmclone_lvm_type = 'thin'
        self.assertEqual('vg-pool', wiring._thin_pool(config))
        config.dmclone_thin_pool = 'fast'
        self.assertEqual('fast', wiring._thin_pool(config))


class RoomTest(ThinCase):

    def test_the_room_of_the_pool(self) -> None:
        self.b.group.used = 3 * GIB
        self.assertEqual(7 * GIB, self.free())
        self.b.group.used = 8 * GIB
        self.assertEqual(2 * GIB, self.free())

    def test_what_has_yet_to_arrive_is_promised(self) -> None:
        self.relocated()
        name, = (name for name in self.b.group.volumes
                 if name.startswith('volume-'))
        lv = self.b.group.volumes[name]
        before = room.space(self.host, self.b.group.report())
        self.assertEqual(9 * GIB, before.free)
        self.assertEqual(GIB, before.provisioned)
        # What has arrived is used, and promised no more.
        lv.blocks = {0: 'x', 1: 'y'}
        self.assertEqual(2 * storage.REGION,
                         self.b.group.usage().used)
        self.assertEqual(9 * GIB, room.space(
            self.host, self.b.group.report()).free)
        # It may have been extended, and written there: that is no part of it.
        lv.size = units.Bytes(2 * GIB)
        lv.blocks = dict.fromkeys(range(8, 14), 'x')
        self.assertEqual(9 * GIB - 6 * storage.REGION, room.space(
            self.host, self.b.group.report()).free)
        lv.blocks = dict.fromkeys(range(16), 'x')
        self.assertEqual(8 * GIB, room.space(
            self.host, self.b.group.report()).free)

    def test_what_others_took_of_what_is_promised(self) -> None:
        """Servers write volumes of which no room was asked for."""
        self.relocated()
        self.b.group.used = int(9.5 * GIB)
        self.assertEqual(0, room.space(self.host,
                                       self.b.group.report()).free)

    def test_what_arrives_while_it_is_counted_is_not_left_out(self) -> None:
        self.relocated()
        name, = (name for name in self.b.group.volumes
                 if name.startswith('volume-'))

        def arrive(call: ports.Call) -> None:
            if call.method in ('usage', 'mapped'):
                blocks = self.b.group.volumes[name].blocks
                blocks[len(blocks)] = 'x'
        self.cloud.after = arrive
        self.assertLessEqual(room.space(
            self.host, self.b.group.report()).free, 9 * GIB)

    def test_a_record_that_makes_no_sense_promises_nothing(self) -> None:
        self.b.group.create('volume-x', units.Bytes(GIB),
                            ['dmclone.1.from/x'])
        self.assertEqual(10 * GIB, self.free())

    def test_too_full(self) -> None:
        """Of data or of metadata; the last moment when it is not."""
        for data, metadata, allowed in (
                (8 * GIB, 80, True), (8 * GIB + 1, 0, False),
                (0, 81, False)):
            self.b.group.used, self.b.group.metadata_used = data, metadata
            if allowed:
                self.admit()
                continue
            for refused in (self.admit, self.free):
                with self.assertRaises(exceptions.PoolFull) as caught:
                    refused()
                for words in (self.b.name, f'volumes/{storage.POOL}',
                              'lvextend'):
                    self.assertIn(words, caught.exception.msg)

    def test_metadata_needs_room_in_the_group(self) -> None:
        """Whatever the pool has: it is not thin."""
        self.b.group.size = units.Bytes(0)
        with self.assertRaises(exceptions.NoRoom) as caught:
            self.free()
        self.assertIn('Volume group volumes on', caught.exception.msg)

    def test_a_volume_does_not_move_to_a_full_pool(self) -> None:
        self.b.group.used = 9 * GIB
        with self.assertRaisesRegex(exceptions.NodeFull, 'is too full'):
            self.relocated()
        self.assertEqual({}, self.b.group.volumes)
        self.assertIsNone(self.cloud.row(self.volume).offer)

    def test_room_that_is_gone_when_the_copy_is_to_be_made(self) -> None:
        """Another copy was asked for at the same time."""
        def fate(message: ports.Message) -> ports.Fate:
            if message.request == 'Prepare':
                self.b.group.used = int(9.5 * GIB)
            return ports.Fate.ARRIVES
        self.b.group.used = int(7.5 * GIB)
        self.cloud.fate = fate
        with self.assertRaisesRegex(exceptions.PeerRefused, 'is too full'):
            self.relocated()
        self.assertEqual({}, self.b.group.volumes)
        self.cloud.settle()
        self.assertEqual((self.a.name, None),
                         (self.cloud.row(self.volume).node,
                          self.cloud.row(self.volume).offer))

    def test_two_that_begin_at_the_same_time(self) -> None:
        """Each is told that there is room for it."""
        self.b.group.pool_size = units.Bytes(2 * GIB - storage.REGION)

        def another(call: ports.Call) -> None:
            if call.method == 'room':
                self.cloud.after = lambda call: None
                self.b.group.create('volume-' + str(uuid.uuid4()),
                                    units.Bytes(GIB), self.copied)
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.b.name}#pool', status='creating')
        attempts = [lambda: births.clone(self.b.service, volume, self.volume),
                    self.relocated]
        for attempt, refusal in zip(attempts, (exceptions.NoRoom,
                                               exceptions.PeerRefused)):
            with self.subTest(attempt=attempt):
                self.cloud.after = another
                with self.assertRaisesRegex(refusal, 'not enough room'):
                    attempt()
                self.cloud.settle()
                self.assertEqual(1, len(self.b.group.volumes))
                self.b.group.volumes.clear()

    @property
    def copied(self) -> list[str]:
        """What a copy of the volume says that begins at the same time."""
        return [lv_tags.print_tag(tag) for tag in (
            lv_tags.CopyTag(2, VolumeId(str(uuid.uuid4()))),
            lv_tags.SourceTag(self.a.name, self.lv, 'iqn', self.a.portal,
                              units.Bytes(GIB), 512))]

    def test_nor_is_one_made_in_it(self) -> None:
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.b.name}#pool')
        for spoil in ({'used': 9 * GIB}, {'used': 0, 'active': False},
                      {'active': True, 'zeroes': False}):
            vars(self.b.group).update(spoil)
            with self.assertRaises(exceptions.NoRoom):
                volumes.create(self.b.service, volume)
        self.assertEqual({}, self.b.group.volumes)


class StatsTest(ThinCase):

    def setUp(self) -> None:
        super().setUp()
        self.stats = capacity.Stats(self.b.service.world, mock.Mock(
            reserved_percentage=0, max_over_subscription_ratio='2.5',
            target_ip_address='198.51.100.9'), lambda: 0, lambda key: None)

    def pool(self) -> dict[str, typing.Any]:
        pool, = self.stats.get('1', None, None)['pools']
        return dict(pool)

    def test_a_thin_pool(self) -> None:
        self.cloud.create(self.b)
        self.cloud.create(self.b)
        self.b.group.used = 3 * GIB
        pool = self.pool()
        self.assertEqual(
            (10, 7, 2, True, False, '2.5', 2, 'up'),
            tuple(pool[name] for name in (
                'total_capacity_gb', 'free_capacity_gb',
                'provisioned_capacity_gb', 'thin_provisioning_support',
                'thick_provisioning_support', 'max_over_subscription_ratio',
                'total_volumes', 'backend_state')))

    def test_nothing_is_free_in_a_pool_that_is_too_full(self) -> None:
        """It is told what is used now, though the group is as it was."""
        for used, free in ((7, 3), (8, 2), (8.5, 0), (3, 7)):
            self.b.group.used = int(used * GIB)
            self.assertEqual(free, self.pool()['free_capacity_gb'])

    def test_the_alarm(self) -> None:
        """One line each time it changes."""
        said = []
        for used in (9.4, 9.6, 9.6, 9.7, 3, 9.7):
            self.b.group.used = int(used * GIB)
            with self.assertLogs(level='INFO') as logs:
                logging.disable(logging.NOTSET)
                logging.getLogger().info('end')
                self.pool()
            said.append([line for line in logs.output if 'ERROR' in line])
        self.assertEqual([0, 1, 0, 1, 0, 1], list(map(len, said)))
        self.assertIn('nearly full: 96 percent of its data', said[1][0])

    def test_a_pool_that_cannot_be_used(self) -> None:
        self.b.group.active = False
        pool = self.pool()
        self.assertEqual(('down', 0), (pool['backend_state'],
                                       pool['free_capacity_gb']))

    def test_what_prometheus_is_told(self) -> None:
        self.b.group.used = 3 * GIB
        found = collector.Collector(collector.Source(self.host))
        told = {family.name: family.samples for family in found.collect()}
        free, = told['cinder_dmclone_volume_group_free_bytes']
        self.assertEqual(7 * GIB, free.value)


class ManageTest(ThinCase):

    def test_lvs_of_the_pool_and_others(self) -> None:
        self.b.group.create('mine', units.Bytes(GIB), [])
        self.b.group.pool = ''
        self.b.group.create('thick', units.Bytes(GIB), [])
        self.assertEqual({'mine': False, 'thick': True}, self.safe())
        self.b.group.pool = storage.POOL
        self.assertEqual({'mine': True, 'thick': True}, self.safe())

    def safe(self) -> dict[str, bool]:
        return {entry['reference']['source-name']: entry['safe_to_manage']
                for entry in manage.manageable(self.b.service)}

    def test_growth_needs_no_room_of_the_group(self) -> None:
        self.b.group.size = units.Bytes(0)
        self.b.group.create('mine', units.Bytes(GIB - (64 << 20)), [])
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, host=f'{self.b.name}#pool', size=0,
                             status='managing')
        manage.manage(self.b.service, volume, {'source-name': 'mine'})
        lv = self.b.group.volumes[names.data_lv(LvUuid(volume))]
        self.assertEqual((GIB, storage.POOL), (lv.size, lv.pool))
        self.assertIsNotNone(lv_tags.Tags.parse(lv.tags).own)


class PreflightTest(ThinCase):

    def problems(self) -> list[str]:
        return [*preflight._check_pool_is_there(self.host),
                *preflight.pool_problems(self.host)]

    def test_a_pool_as_it_should_be(self) -> None:
        self.assertEqual([], self.problems())
        preflight.check_pool(self.host)

    def test_a_node_without_one_needs_none(self) -> None:
        self.b.group.pool = ''
        self.b.group.active = False
        self.assertEqual([], self.problems())

    def test_no_pool_and_one_of_another_kind(self) -> None:
        report = self.b.group.report
        for lvs, words in (((), 'has no thin pool'),
                           ((storage.POOL,), 'is no thin pool')):
            with mock.patch.object(self.b.group, 'report', lambda patient: (
                    types.SimpleNamespace(pools=(), lvs=lvs))):
                found, = self.problems()
            for word in (words, '[dmclone]', 'volumes', 'dmclone_thin_pool',
                         'lvcreate --type thin-pool --name volumes-pool'):
                self.assertIn(word, found)
        self.assertIn(storage.POOL, report().pools)

    def test_a_pool_that_is_not_fit(self) -> None:
        self.b.group.zeroes = False
        found, = self.problems()
        self.assertIn('lvchange --zero y volumes/volumes-pool', found)
        self.b.group.active = False
        found, = self.problems()
        self.assertIn('[dmclone]', found)
        self.assertIn('lvchange --activate y volumes/volumes-pool', found)
        with self.assertRaises(exception.VolumeBackendAPIException):
            preflight.check_pool(self.host)

    def test_a_group_that_cannot_be_read_is_said_once(self) -> None:
        self.b.group.lost = True
        self.assertEqual([], list(preflight._check_pool_is_there(self.host)))
