# SPDX-License-Identifier: Apache-2.0
"""A node puts everything away, and everything comes back."""

from __future__ import annotations

import typing

from cinder_dmclone.host.dm import table
from cinder_dmclone import names
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import deactivation
from tests.unit import base
from tests.unit.fake.bomb import Bomb
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit import migration

LATER = 'written on b, and not flushed'


class Case(base.CloudTestCase):

    def deactivate(self, node: cloud.Node) -> dict[typing.Any, str]:
        """As the command does, beside no cinder-volume."""
        node.kill()
        world = type(node.process)(node).world
        lines = deactivation.in_use(world.host)
        return dict(enumerate(lines)) or deactivation.deactivate(world)

    def activate(self, node: cloud.Node) -> None:
        node.up = True
        world = type(node.process)(node).world
        with self.cloud.db.away():
            self.assertEqual({}, activation.activate(world))

    def assert_bare(self, node: cloud.Node) -> None:
        self.assertEqual(({}, {}, {}), (
            node.mapper.mapped, node.targets.exports,
            node.initiator.sessions_))
        self.assert_no_complaints()

    def disks(self, node: cloud.Node) -> dict[str, tuple[object, ...]]:
        """What outlives a power cut, but for data."""
        return {name: (lv.size, lv.tags)
                for name, lv in node.group.volumes.items()} | {
                    iqn: (record.portal, record.password) for iqn, record
                    in node.initiator.records_.items()}


class RestTest(Case):
    """A volume that is where its server is."""

    def setUp(self) -> None:
        super().setUp()
        _, self.path = self.cloud.attach(self.volume, self.a)

    def test_a_closed_front_goes_and_comes_back(self) -> None:
        before = self.disks(self.a)
        self.assertEqual({}, self.deactivate(self.a))
        self.assert_bare(self.a)
        self.assertEqual(before, self.disks(self.a))
        self.activate(self.a)
        self.assert_data(self.a, self.path)

    def test_nothing_is_done_twice(self) -> None:
        self.deactivate(self.a)
        before = len(self.cloud.calls)
        self.assertEqual({}, self.deactivate(self.a))
        changes = [str(call) for call in self.cloud.calls[before:]
                   if not call.reads and call.method != 'remove']
        self.assertEqual([], changes)

    def test_an_open_front_is_refused(self) -> None:
        other = self.cloud.create(self.a)
        self.cloud.attach(other, self.a)
        self.a.mapper.open(self.path)
        before = dict(self.a.mapper.mapped)
        line, = self.deactivate(self.a).values()
        self.assertIn(f'volume {self.volume}: {self.path} is in use: stop '
                      'its server or detach the volume', line)
        self.assertEqual(before, self.a.mapper.mapped)

    def test_one_that_is_opened_meanwhile_is_kept(self) -> None:
        other = self.cloud.create(self.a)
        self.cloud.attach(other, self.a)

        def opened(call: ports.Call) -> None:
            if call.port == 'locks':
                self.cloud.before = lambda call: None
                self.a.mapper.open(self.path)

        self.cloud.before = opened
        found = self.deactivate(self.a)
        self.assertEqual({self.volume}, set(found))
        self.assertEqual({self.path.rpartition('/')[2]},
                         set(self.a.mapper.mapped))

    def test_a_volume_that_is_worked_on_is_left_alone(self) -> None:
        self.a.kill()
        world = type(self.a.process)(self.a).world
        with world.locks.volume(self.volume, 0.0):
            self.assertEqual({self.volume},
                             set(deactivation.deactivate(world)))
        self.assertEqual(1, len(self.a.mapper.mapped))


class AdviceTest(base.TestCase):

    def test_about_every_device_that_may_be_open(self) -> None:
        self.assertEqual(set(names.CONSUMERS), set(deactivation._ADVICE))


class HydratingTest(Case):
    """A volume of a that has just moved to b, and was written there."""

    def setUp(self) -> None:
        super().setUp()
        self.move()

    def move(self) -> None:
        self.attachment = self.cloud.reserve(self.volume)
        self.path = self.cloud.connect(self.volume, self.attachment, self.b)
        self.cloud.complete(self.volume, self.attachment)
        self.cloud.settle(1)
        self.b.mapper.open(self.path)
        self.b.mapper.write(self.path, 6, LATER)
        self.b.mapper.close(self.path)
        self.data = [*base.DATA]
        self.data[6] = LATER

    def assert_ends_well(self) -> None:
        """cinder-volume runs again, and the volume is whole."""
        self.cloud.restart()
        for _ in range(3):
            self.cloud.settle()
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)
        self.assert_data(self.b, self.path, self.data)
        self.assert_settled(self.data)

    def test_the_borrower(self) -> None:
        before = self.disks(self.b)
        self.assertEqual({}, self.deactivate(self.b))
        self.assert_bare(self.b)
        self.assertEqual(before, self.disks(self.b))
        self.activate(self.b)
        self.assert_data(self.b, self.path, self.data)
        self.assert_ends_well()

    def test_what_was_written_is_durable(self) -> None:
        """Nobody has flushed it, and then the power goes."""
        self.deactivate(self.b)
        self.b.lose_power()
        self.activate(self.b)
        self.assert_data(self.b, self.path, self.data)
        self.assert_ends_well()

    def test_the_borrower_while_its_lender_is_away(self) -> None:
        self.a.lose_power()
        self.assertEqual({}, self.deactivate(self.b))
        self.assert_bare(self.b)
        self.activate(self.b)
        self.a.start()
        self.cloud.settle(3)
        self.assert_ends_well()

    def test_one_that_is_open_is_left_as_it_is(self) -> None:
        """What others do not use goes, and its reads go on to wait."""
        other = self.cloud.create(self.b)
        _, closed = self.cloud.attach(other, self.b)
        self.b.mapper.open(self.path)
        self.a.lose_power()
        self.b.kill()
        world = type(self.b.process)(self.b).world
        before = {name: found for name, found in self.b.mapper.mapped.items()
                  if name != closed.rpartition('/')[2]}
        self.assertEqual({self.cloud.row(self.volume).lv},
                         set(deactivation.deactivate(world)))
        self.assertEqual(before, self.b.mapper.mapped)
        name = str(names.source(self.cloud.row(self.volume).lv))
        source = self.b.mapper.mapped[name].target
        assert isinstance(source, table.Multipath)
        self.assertTrue(source.queue)

    def test_the_lender_is_refused_while_it_is_read(self) -> None:
        line, = self.deactivate(self.a).values()
        self.assertIn(f'volume {self.volume}: /dev/mapper/dmclone-loan-',
                      line)
        self.assertIn(f'deactivate {self.b.initiator.name()} first', line)
        self.assertEqual(1, len(self.a.targets.exports))

    def test_a_borrower_that_comes_back_meanwhile(self) -> None:
        """It has its source again, and keeps it."""
        self.cloud.partition(self.a, self.b)

        def heal(call: ports.Call) -> None:
            if call.port == 'locks':
                self.cloud.heal()

        self.cloud.before = heal
        self.assertEqual({self.volume}, set(self.deactivate(self.a)))
        self.assertEqual(1, len(self.a.targets.exports))

    def test_both(self) -> None:
        for node in (self.b, self.a):
            self.assertEqual({}, self.deactivate(node))
            self.assert_bare(node)
        for node in (self.a, self.b):
            self.activate(node)
        self.assert_data(self.b, self.path, self.data)
        self.assert_ends_well()

    def test_hydrated_to_the_end(self) -> None:
        """Its consumers are past the clone, which is still there."""
        clone = names.clone(self.cloud.row(self.volume).lv)

        def last(call: ports.Call) -> None:
            if call.method == 'logout':
                self.b.kill()

        self.cloud.before = last
        self.cloud.settle()
        self.cloud.before = lambda call: None
        self.assertIn(str(clone), self.b.mapper.mapped)
        self.assertEqual({}, self.deactivate(self.b))
        self.assert_bare(self.b)
        self.activate(self.b)
        self.assert_data(self.b, self.path, self.data)
        self.assert_ends_well()

    def every_crash(self, how: str, away: bool = False) -> None:
        """A crash before each change, then the activation.

        :param away: whether the lender is away until the end
        """
        at, more = 0, True
        while more:
            if away:
                self.a.lose_power()
            self.b.kill()
            process = type(self.b.process)(self.b)
            self.b.process = process
            bomb = Bomb(getattr(self.b, how), at, by=self.b.name)
            self.cloud.before = bomb
            try:
                deactivation.deactivate(process.world)
            except ports.Killed:
                pass
            self.cloud.before = lambda call: None
            with self.subTest(at=bomb.where):
                self.activate(self.b)
                for name, found in self.b.mapper.mapped.items():
                    if '-source-' in name:
                        assert isinstance(found.target, table.Multipath)
                        self.assertTrue(found.target.queue, name)
                if how == 'lose_power':
                    # Without a flush it may take what was written.
                    self.data[6] = self.b.mapper.read(self.path, 6)
                    self.assertIn(self.data[6], (LATER, base.DATA[6]))
                if away:
                    self.a.start()
                    self.cloud.settle(3)
                self.b.kill()
                self.assert_ends_well()
            more = bomb.where is not None
            at += 1
            self.cloud.db.close()
            self.build()
            self.move()
        self.assertGreater(at, 5)

    def test_process_ends_before_each_change(self) -> None:
        self.every_crash('kill')

    def test_process_ends_while_the_lender_is_away(self) -> None:
        self.every_crash('kill', away=True)

    def test_power_is_lost_before_each_change(self) -> None:
        self.every_crash('lose_power')


class MigrationTest(migration.MigrationTestCase, Case):
    """A server moves from a to b meanwhile."""

    def test_both_sides_are_refused_while_it_runs(self) -> None:
        self.migrate()
        for node, path in ((self.a, self.old), (self.b, self.new)):
            # The lender has b's session, too.
            self.assertIn(f'{path} is in use',
                          ' '.join(self.deactivate(node).values()))

    def test_the_destination_is_put_away_before_the_server_comes(
            self) -> None:
        self.migrate()
        self.b.mapper.close(self.new)
        self.assertEqual({}, self.deactivate(self.b))
        self.assert_bare(self.b)
        self.cloud.restart()
        self.cloud.settle()
        self.assert_home(self.a)
        self.write(self.a, self.old)
        self.assert_data(self.a, self.old, self.data)
