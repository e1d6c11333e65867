# SPDX-License-Identifier: Apache-2.0
"""A volume that grows, whoever uses it."""

from __future__ import annotations

from unittest import mock

from oslo_serialization import jsonutils

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.service import connections
from cinder_dmclone.service import snapshots
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import consumers
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit import migration


class ExtendTest(base.CloudTestCase):

    def size(self, node: cloud.Node) -> units.Bytes:
        lv = self.cloud.row(self.volume).lv
        return node.group.volumes[names.data_lv(lv)].size

    def extend(self, gib: int) -> None:
        volumes.extend(self.cloud.home(self.volume).service, self.volume, gib)
        self.cloud.db.update(self.volume, size=gib)

    def test_at_rest(self) -> None:
        self.extend(2)
        self.assertEqual(units.Bytes.from_gib(2), self.size(self.a))
        _, path = self.relocated()
        self.cloud.settle()
        self.assertEqual(units.Bytes.from_gib(2), self.size(self.b))
        self.assert_settled()

    def test_front_grows(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.extend(2)
        found = self.a.mapper.mapped[path.rpartition('/')[2]]
        self.assertEqual(units.Bytes.from_gib(2),
                         found.table.length.to_bytes())

    def test_while_hydrating(self) -> None:
        _, path = self.relocated()
        self.extend(2)
        self.b.mapper.write(path, 12, 'behind the old end')
        self.b.mapper.flush(path)
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assertEqual('behind the old end',
                         self.b.mapper.read(path, 12))
        self.assert_settled()

    def test_one_that_comes_late(self) -> None:
        """Cinder would write its size down: the volume is larger."""
        for _ in range(2):
            self.extend(3)
        with self.assertRaisesRegex(exceptions.CannotExtend, 'has 3 GiB'):
            self.extend(2)
        self.assertEqual(units.Bytes.from_gib(3), self.size(self.a))

    def test_no_room(self) -> None:
        self.assertRaises(exceptions.CommandFailed, self.extend, 1000)
        self.assertEqual(units.Bytes.from_gib(1), self.size(self.a))

    def test_a_server_that_writes_goes_on(self) -> None:
        """Its volume hydrates, and it finds its disk larger."""
        _, path = self.relocated()
        self.b.mapper.open(path)
        self.b.mapper.write(path, 0, 'before')
        self.extend(2)
        self.b.mapper.write(path, 12, 'behind the old end')
        self.assert_data(self.b, path, ['before', *base.DATA[1:]])
        self.cloud.settle()
        self.assertEqual(
            ['before', 'behind the old end'],
            [self.b.mapper.read(path, region) for region in (0, 12)])

    def test_a_server_elsewhere(self) -> None:
        """Whoever has it makes its initiator look again."""
        connector = {'host': 'elsewhere', 'initiator': 'iqn.elsewhere'}
        attachment = self.cloud.reserve(self.volume)
        connections.connect(self.a.service, self.volume, connector)
        self.cloud.db.update_attachment(
            attachment, connector=jsonutils.dumps(connector))
        self.cloud.complete(self.volume, attachment)
        self.extend(2)
        export, = self.a.targets.exports.values()
        serve = self.a.mapper.mapped[export.device.rpartition('/')[2]]
        self.assertEqual(units.Bytes.from_gib(2),
                         serve.table.length.to_bytes())

    def test_cinder_migrates_it(self) -> None:
        """A volume of the size of before becomes it."""
        for status in ('starting', 'migrating', 'completing'):
            self.cloud.db.update(self.volume, migration_status=status)
            self.assertRaisesRegex(
                exceptions.CannotExtend, f'migration status is {status}',
                self.extend, 2)
            self.assertEqual(units.Bytes.from_gib(1), self.size(self.a))
        for ended in (None, 'success', 'error'):
            self.cloud.db.update(self.volume, migration_status=ended)
            self.extend(2)

    def test_its_lender_is_away(self) -> None:
        """A read that waits would keep the front from growing."""
        _, path = self.relocated()
        self.b.mapper.open(path)
        self.cloud.partition(self.a, self.b)
        self.cloud.lose_paths()
        self.assertRaisesRegex(
            exceptions.CannotExtend, f'{self.volume} on b@dmclone cannot be '
            'extended: while its lender a@dmclone is away', self.extend, 2)
        self.assertEqual(units.Bytes.from_gib(1), self.size(self.b))
        self.b.mapper.close(path)

    def test_its_lender_is_away_and_nobody_has_read_since(self) -> None:
        """Its path counts as usable until a read fails."""
        _, path = self.relocated()
        self.b.mapper.open(path)
        with mock.patch.object(self.cloud, 'lose_paths'):
            self.cloud.partition(self.a, self.b)
        self.assertRaisesRegex(
            exceptions.CannotExtend, 'its lender a@dmclone is away',
            self.extend, 2)
        self.b.mapper.close(path)

    def test_the_lender_of_its_lender_here_is_away(self) -> None:
        """It waits there for what is not here either."""
        _, path = self.relocated()
        snapshots.create(self.b.service, self.volume, self.cloud.db.snapshot(
            self.volume, 'creating'))
        self.b.mapper.open(path)
        self.cloud.partition(self.a, self.b)
        self.cloud.lose_paths()
        with self.assertRaises(mapped.Queued):
            self.b.mapper.read(path, 0)
        self.assertRaisesRegex(
            exceptions.CannotExtend, f'{self.volume} on b@dmclone cannot be '
            'extended: while its lender a@dmclone is away', self.extend, 2)
        self.b.mapper.close(path)

    def test_io_that_does_not_end(self) -> None:
        """The LV has grown: it is asked for again, or for less."""
        _, path = self.cloud.attach(self.volume, self.a)
        with mock.patch.object(consumers, 'consume', side_effect=(
                exceptions.CommandTimeout(command='x', seconds=1))):
            self.assertRaisesRegex(
                exceptions.GrownInPart, f'Volume {self.volume} on a@dmclone '
                r'has grown, and dmclone-front-\S+, .* extend it to 3 GiB',
                self.extend, 3)
        for gib in (2, 3):
            self.extend(gib)
            found = self.a.mapper.mapped[path.rpartition('/')[2]]
            self.assertEqual(units.Bytes.from_gib(3),
                             found.table.length.to_bytes())

    def test_an_open_offer_is_settled_first(self) -> None:
        """H15: a copy of the old size must not be committed."""
        def before(call: ports.Call) -> None:
            if call.method == 'commit':
                self.cloud.before = lambda call: None
                self.a.kill()
        self.cloud.before = before
        attachment = self.cloud.reserve(self.volume)
        self.assertRaises(ports.Killed, self.cloud.connect, self.volume,
                          attachment, self.b)
        self.cloud.restart()
        self.extend(2)
        self.assertIsNone(self.cloud.row(self.volume).offer)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()


class LiveMigrationTest(migration.MigrationTestCase):
    """It is asked for while the volume's server moves."""

    def extend(self) -> None:
        """Cinder asks the node where the volume was."""
        volumes.extend(self.a.service, self.volume, 2)

    def test_it_ends_first(self) -> None:
        self.migrate()
        with mock.patch.object(self.cloud.clock, 'sleep',
                               lambda seconds: self.switch()):
            self.extend()
        self.assert_home(self.b)
        self.b.mapper.write(self.new, 12, 'behind the old end')
        self.assert_data(self.b, self.new, self.data)

    def test_it_does_not_end(self) -> None:
        self.migrate()
        self.assertRaises(exceptions.LiveMigrated, self.extend)
        self.assert_home(self.a)
        self.write(self.a, self.old, 1)
