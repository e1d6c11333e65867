# SPDX-License-Identifier: Apache-2.0
"""A volume that several servers have: where it is, for as long as they do."""

from __future__ import annotations

import typing
from unittest import mock

from oslo_serialization import jsonutils

from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.releases import models
from cinder_dmclone.relocation import cut
from cinder_dmclone.service import answers
from cinder_dmclone.service import connections
from tests.unit import base
from tests.unit.fake import cloud

ONE = 'd53ab99e-5ab0-4374-b9e8-34c0e03b1a1f'
TWO = '0b1f9d3e-6a53-4c1f-9a51-0cf0a7b0c3de'
THREE = '7f0a2c55-93b1-4f0e-8f11-2f5f1f3c9a10'

Info = dict[str, typing.Any]


class MultiattachTest(base.CloudTestCase):
    """Servers on the nodes a, b and c, and a volume that begins on a."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.c, = self.others
        self.cloud.db.update(self.volume, multiattach=True)

    # -- what Nova does -----------------------------------------------------

    def reserve(self, server: str) -> str:
        self.cloud.db.update(self.volume, status='reserved')
        return self.cloud.db.attachment(self.volume, instance_uuid=server)

    def ask(self, node: cloud.Node) -> Info:
        return connections.connect(self.cloud.home(self.volume).service,
                                   self.volume, node.connector)

    def write_down(self, attachment: str, node: cloud.Node,
                   info: Info) -> None:
        self.cloud.db.update_attachment(
            attachment, connector=jsonutils.dumps(node.connector),
            connection_info=jsonutils.dumps(info))
        self.cloud.complete(self.volume, attachment)

    def attach(self, server: str, node: cloud.Node) -> tuple[str, Info]:
        attachment = self.reserve(server)
        try:
            info = self.ask(node)
        except exceptions.DMCloneException:
            self.forget(attachment)
            raise
        self.write_down(attachment, node, info)
        return attachment, info

    def move(self, server: str, node: cloud.Node) -> tuple[str, Info]:
        """A live migration, until the server runs there."""
        attachment = self.cloud.db.attachment(self.volume,
                                              instance_uuid=server)
        info = self.ask(node)
        self.write_down(attachment, node, info)
        return attachment, info

    def detach(self, attachment: str, node: cloud.Node) -> None:
        connections.disconnect(self.cloud.home(self.volume).service,
                               self.volume, node.connector)
        self.forget(attachment)

    def forget(self, attachment: str) -> None:
        self.cloud.db.drop_attachment(attachment)
        left = self.cloud.row(self.volume).attachments
        self.cloud.db.update(self.volume,
                             status='in-use' if left else 'available')

    def cut(self) -> None:
        """What a snapshot of a volume that is written needs."""
        with self.a.service.home(self.volume, 'cut') as (row, _):
            cut.cut(self.a.process.world, row)

    # -- what there is ------------------------------------------------------

    def served(self) -> set[str]:
        """The nodes that node a lets log in."""
        initiators = {grant.initiator
                      for export in self.a.targets.exports.values()
                      for grant in export.grants}
        return {node.host for node in self.cloud.nodes.values()
                if node.initiator.name() in initiators}

    def of_kind(self, *kinds: names.Kind) -> list[str]:
        found = {text: names.DeviceName.parse(text)
                 for text in self.a.mapper.mapped}
        return [text for text, name in found.items()
                if name and name.kind in kinds]

    def fronts(self) -> list[str]:
        return self.of_kind(names.Kind.FRONT)

    def assert_at_a(self) -> None:
        row = self.cloud.row(self.volume)
        self.assertEqual((self.a.name, self.volume, 1, None, None),
                         (row.node, row.lv, row.generation, row.offer,
                          row.source))
        self.assert_no_complaints()

    def served_to(self, outside: dict[str, str]) -> None:
        """A server gets it there that is not on a node."""
        served = self.reserve(ONE)
        info = connections.connect(self.b.service, self.volume, outside)
        self.cloud.db.update_attachment(
            served, connector=jsonutils.dumps(outside),
            connection_info=jsonutils.dumps(info))
        self.cloud.complete(self.volume, served)


class SameNodeTest(MultiattachTest):

    def test_they_share_the_front_until_the_last_has_left(self) -> None:
        first, info = self.attach(ONE, self.a)
        second, other = self.attach(TWO, self.a)
        self.assertEqual(info, other)
        self.detach(first, self.a)
        self.cloud.settle()
        self.assertEqual(1, len(self.fronts()))
        self.detach(second, self.a)
        self.cloud.settle()
        self.assert_settled()
        self.assertEqual([], self.fronts())

    def test_a_snapshot_needs_no_more_than_with_one(self) -> None:
        _, info = self.attach(ONE, self.a)
        self.attach(TWO, self.a)
        path = info['data']['device_path']
        self.a.mapper.open(path)
        self.a.mapper.open(path)
        self.cut()
        self.assert_data(self.a, path)
        self.assertNotEqual(self.volume, self.cloud.row(self.volume).lv)

    def test_also_on_the_node_that_the_first_has_moved_it_to(self) -> None:
        _, info = self.attach(ONE, self.b)
        _, other = self.attach(TWO, self.b)
        self.assertEqual(info, other)
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)


class TwoNodesTest(MultiattachTest):

    def setUp(self) -> None:
        super().setUp()
        self.first, self.here = self.attach(ONE, self.a)
        self.second, self.there = self.attach(TWO, self.b)

    def test_the_second_is_served_where_the_volume_is(self) -> None:
        self.assertEqual(('local', 'iscsi'), (
            self.here['driver_volume_type'],
            self.there['driver_volume_type']))
        self.cloud.settle()
        self.assert_at_a()
        self.assertEqual({'b'}, self.served())
        self.assertEqual(1, len(self.fronts()))
        path = self.here['data']['device_path']
        self.a.mapper.write(path, 3, 'by the first')
        export, = self.a.targets.exports.values()
        self.assertEqual('by the first',
                         self.a.mapper.read(export.device, 3))

    def test_each_can_leave_first(self) -> None:
        self.detach(self.first, self.a)
        self.cloud.settle()
        self.assertEqual(({'b'}, []), (self.served(), self.fronts()))
        self.detach(self.second, self.b)
        self.cloud.settle()
        self.assert_settled()

    def test_or_the_other_one(self) -> None:
        self.detach(self.second, self.b)
        self.cloud.settle()
        self.assertEqual((set(), 1), (self.served(), len(self.fronts())))
        self.detach(self.first, self.a)
        attachment, info = self.attach(TWO, self.b)
        self.assertEqual('local', info['driver_volume_type'])
        self.cloud.settle()
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)
        self.assert_settled()

    def test_both_are_back_after_a_reboot(self) -> None:
        self.a.lose_power()
        self.a.start()
        self.cloud.settle()
        self.assert_at_a()
        self.assertEqual(({'b'}, 1), (self.served(), len(self.fronts())))

    def test_a_live_migration_moves_no_volume(self) -> None:
        attachment, info = self.move(ONE, self.c)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.assertEqual({'b', 'c'}, self.served())
        self.assertEqual([], self.of_kind(*names.GATE))
        self.detach(self.first, self.a)
        self.cloud.settle()
        self.assert_at_a()
        self.assertEqual({'b', 'c'}, self.served())
        self.assertEqual([], self.fronts())
        # And back to the node of the volume.
        _, info = self.move(TWO, self.a)
        self.assertEqual('local', info['driver_volume_type'])
        self.detach(self.second, self.b)
        self.cloud.settle()
        self.assertEqual(({'c'}, 1), (self.served(), len(self.fronts())))

    def test_a_live_migration_that_fails(self) -> None:
        attachment, _ = self.move(ONE, self.c)
        self.detach(attachment, self.c)
        self.cloud.settle()
        self.assert_at_a()
        self.assertEqual(({'b'}, 1), (self.served(), len(self.fronts())))

    def test_another_that_joins_after_a_snapshot(self) -> None:
        """Who is served already keeps the disk that he has."""
        self.detach(self.first, self.a)
        self.cut()
        self.attach(THREE, self.c)
        self.assertEqual({'b', 'c'}, self.served())
        self.cloud.settle()
        self.assert_no_complaints()

    def test_whose_kernel_flushes_nothing(self) -> None:
        """What he writes to a copy that hydrates would not be durable."""
        self.detach(self.first, self.a)
        self.a.mapper.caches = lambda devnum: False
        before = self.cloud.row(self.volume)
        with self.assertRaisesRegex(exceptions.CannotCut,
                                    'Detach it from the servers that are'):
            self.cut()
        self.assertEqual(before, self.cloud.row(self.volume))
        self.detach(self.second, self.b)
        self.cut()

    def test_two_servers_of_a_host_have_one_right(self) -> None:
        """Cinder says by whom a connection ends, and not which."""
        third, info = self.attach(THREE, self.b)
        self.assertEqual(self.there, info)
        self.detach(self.second, self.b)
        self.assertEqual({'b'}, self.served())
        # A repeated request finds one, and ends it.
        self.detach(third, self.b)
        self.assertEqual(set(), self.served())
        self.cloud.settle()
        self.assertEqual({}, self.a.targets.exports)

    def test_who_has_been_answered_keeps_what_he_was_given(self) -> None:
        """Cinder writes the connector down when the driver has answered."""
        third = self.reserve(THREE)
        info = self.ask(self.b)
        self.detach(self.second, self.b)
        self.cloud.settle()
        self.assertEqual({'b'}, self.served())
        self.write_down(third, self.b, info)
        self.detach(third, self.b)
        self.assertEqual(set(), self.served())

    def test_what_nobody_takes_up_goes(self) -> None:
        third = self.reserve(THREE)
        self.ask(self.b)
        self.detach(self.second, self.b)
        self.forget(third)
        self.cloud.settle()
        self.assertEqual({}, self.a.targets.exports)

    def test_a_snapshot_is_refused_and_says_why(self) -> None:
        generation = self.cloud.row(self.volume).generation
        for _ in range(2):
            with self.assertRaisesRegex(
                    exceptions.CannotCut, f'{self.volume}.*{self.a.name}.*'
                    'several servers.*Detach it'):
                self.cut()
        self.cloud.settle()
        self.assert_at_a()
        self.assertEqual(generation, self.cloud.row(self.volume).generation)
        self.assertEqual(({'b'}, 1), (self.served(), len(self.fronts())))
        self.detach(self.second, self.b)
        self.cut()


class OneVolumeAtATimeTest(MultiattachTest):
    """Nobody joins while a volume moves, or is on its way."""

    def test_while_its_server_is_live_migrated(self) -> None:
        first, _ = self.attach(ONE, self.a)
        attachment, _ = self.move(ONE, self.b)
        offer = self.cloud.row(self.volume).offer
        self.assertEqual(self.b.name, offer and offer.node)
        for node in self.cloud.nodes.values():
            with self.assertRaisesRegex(exceptions.LiveMigrated,
                                        'try again afterwards'):
                self.attach(TWO, node)
        # It is neither given up nor in the way.
        self.detach(first, self.a)
        self.cloud.settle()
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)
        _, info = self.attach(TWO, self.c)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.assert_settled_but_served()

    def assert_settled_but_served(self) -> None:
        self.cloud.settle()
        self.assertEqual(1, len(self.b.targets.exports))
        self.assert_no_complaints()

    def test_a_repeated_request_of_the_one_that_moves_is_answered(
            self) -> None:
        self.attach(ONE, self.a)
        self.cloud.db.attachment(self.volume, instance_uuid=ONE)
        self.assertEqual(self.ask(self.b), self.ask(self.b))

    def test_no_commit_takes_it_away_from_another_server(self) -> None:
        """Whatever has let that one in."""
        self.attach(ONE, self.a)
        self.move(ONE, self.b)
        self.write_down(self.reserve(TWO), self.a, {})
        row = self.cloud.row(self.volume)
        with self.assertRaisesRegex(exceptions.CannotRelocate,
                                    'another server'):
            answers.hand_over(self.a.service, messages.HandOver(
                row.id, typing.cast(Location, row.offer), 'pool'))
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)

    def test_while_it_hydrates_elsewhere_is_refused(self) -> None:
        self.attach(ONE, self.b)
        with self.assertRaisesRegex(
                exceptions.Hydrates, 'on this node: try again'):
            self.attach(TWO, self.c)
        self.assertEqual({}, self.b.targets.exports)
        self.assertEqual(1, len(self.cloud.db.all(models.Message)))
        self.attach(TWO, self.b)
        self.cloud.settle()
        _, info = self.attach(THREE, self.c)
        self.assertEqual('iscsi', info['driver_volume_type'])

    def test_while_it_hydrates_from_its_own_node(self) -> None:
        """As after a snapshot, for hours: no read waits for another node."""
        self.attach(ONE, self.a)
        self.cut()
        _, info = self.attach(TWO, self.b)
        self.assertEqual('iscsi', info['driver_volume_type'])
        _, info = self.attach(THREE, self.a)
        self.assertEqual('local', info['driver_volume_type'])
        self.assertTrue(self.hydrates(self.a))
        # It is served under the name of the LV that was its copy.
        with mock.patch.object(self.a.targets, 'remove') as removed:
            self.cloud.settle()
        removed.assert_not_called()
        self.assertEqual({'b'}, self.served())
        self.assertFalse(self.hydrates(self.a))
        self.assert_no_complaints()

    def test_while_its_lender_here_hydrates_is_refused(self) -> None:
        attachment, _ = self.attach(ONE, self.b)
        with self.b.service.home(self.volume, 'cut') as (row, _):
            cut.cut(self.b.process.world, row)
        with self.assertRaisesRegex(exceptions.Hydrates, 'on this node'):
            self.attach(TWO, self.c)
        self.assertEqual({}, self.b.targets.exports)

    def hydrates(self, node: cloud.Node) -> bool:
        return any(name.startswith('dmclone-clone')
                   for name in node.mapper.mapped)

    def test_a_hydration_that_ends_soon_is_waited_for(self) -> None:
        self.attach(ONE, self.b)
        sleep = self.cloud.clock.sleep

        def slept(seconds: float) -> None:
            sleep(seconds)
            self.b.mapper.hydrate(base.REGIONS)
            with mock.patch.object(self.cloud.clock, 'sleep', sleep):
                self.b.process.loop.run_once()
        with mock.patch.object(self.cloud.clock, 'sleep', slept):
            _, info = self.attach(TWO, self.c)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.assertEqual([], self.cloud.db.all(models.Message))

    def test_while_it_hydrates_and_is_served(self) -> None:
        attachment, _ = self.attach(ONE, self.b)
        self.detach(attachment, self.b)
        self.served_to({'host': 'x', 'initiator': 'iqn.x'})
        with self.assertRaisesRegex(exceptions.Hydrates, 'over iSCSI'):
            self.attach(TWO, self.b)
        _, info = self.attach(TWO, self.c)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.cloud.settle()
        _, info = self.attach(THREE, self.b)
        self.assertEqual('local', info['driver_volume_type'])


class NotMultiattachTest(MultiattachTest):

    def setUp(self) -> None:
        super().setUp()
        self.cloud.db.update(self.volume, multiattach=False)

    def test_nobody_reads_what_hydrates_in_two_ways(self) -> None:
        """Its server is live-migrated from one to the other."""
        outside = {'host': 'x', 'initiator': 'iqn.x'}
        attachment, _ = self.attach(ONE, self.b)
        self.reserve(ONE)
        with self.assertRaisesRegex(exceptions.Hydrates, 'on this node'):
            connections.connect(self.b.service, self.volume, outside)
        self.detach(attachment, self.b)
        self.served_to(outside)
        with self.assertRaisesRegex(exceptions.Hydrates, 'over iSCSI'):
            self.attach(ONE, self.b)
        self.cloud.settle()
        _, info = self.attach(ONE, self.b)
        self.assertEqual('local', info['driver_volume_type'])

    def test_another_attachment_is_in_the_way(self) -> None:
        self.attach(ONE, self.a)
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'another attachment'):
            self.attach(TWO, self.b)
