# SPDX-License-Identifier: Apache-2.0
"""Only a server's attachment moves a volume: one test per operation."""

from __future__ import annotations

import dataclasses
import itertools
import typing

from cinder_dmclone.database.attachment import Attachment
from cinder_dmclone.database import rows
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.service import attach_policy
from tests.unit import base

How = attach_policy.How
PEER = NodeName('b@x')


def row(status: str, *attachments: Attachment,
        migration: str | None = None, multiattach: bool = False) -> rows.Row:
    return rows.Row(VolumeId('v'), 'a@x#pool', None, 1, status, migration,
                    '1', False, 'project', attachments, multiattach)


def reserved(id_: str = 'new', instance: str | None = 'server',
             ) -> Attachment:
    return Attachment(id_, 'reserved', instance, False, None, None)


def attached(host: str = 'a', id_: str = 'old',
             status: str = 'attached') -> Attachment:
    return Attachment(id_, status, 'server', True, host, 'iqn.' + host)


def place(found: rows.Row, asking: str = 'b', peer: bool = True,
          up: bool = True, misnamed: str | None = None,
          **connector: typing.Any) -> attach_policy.Placement:
    return attach_policy.place(
        found, {'host': asking, 'initiator': 'iqn.' + asking} | connector,
        'a', PEER if peer and asking != 'a' else None, up,
        NodeName(misnamed) if misnamed else None)


class ServerTest(base.TestCase):
    """What moves a volume."""

    def test_nova_attach(self) -> None:
        found = place(row('reserved', reserved()))
        self.assertEqual((How.RELOCATE, 'new', PEER),
                         (found.how, found.attachment, found.peer))

    def test_nova_attach_repeated(self) -> None:
        found = place(row('attaching', attached('b', 'new', 'attaching')))
        self.assertEqual((How.RELOCATE, 'new'), (found.how,
                                                 found.attachment))

    def test_nova_attach_that_is_complete(self) -> None:
        """A request that comes twice, late, would set it back."""
        for asking, other in (('b', 'b'), ('a', 'a'),
                              # An image is copied once more, from here.
                              ('a', 'b')):
            found = place(row('in-use', attached(other)), asking)
            self.assertIs(How.REFUSE, found.how, (asking, other))
            self.assertIn('attachment old is complete', found.why)

    def test_nova_attach_that_is_not_asked_for_any_more(self) -> None:
        found = place(row('in-use', attached('c')), 'b')
        self.assertIs(How.REFUSE, found.how)
        self.assertIn('no attachment waits', found.why)

    def test_nova_asks_again_for_one_of_the_old_api(self) -> None:
        """Such an attachment has no connector."""
        old = dataclasses.replace(attached('b'), connected=False)
        self.assertIs(How.ISCSI, place(row('in-use', old), 'b').how)

    def test_ironic_attach(self) -> None:
        """It makes no attachment before it has connected."""
        for peer in (True, False):
            self.assertIs(How.ISCSI,
                          place(row('attaching'), peer=peer).how)

    def test_nova_attach_repeated_that_was_served_in_place(self) -> None:
        """Its server may have it: there may be room now, or not."""
        new = dataclasses.replace(attached('b', 'new', 'attaching'),
                                  kind='iscsi')
        self.assertIs(How.ISCSI, place(row('attaching', new)).how)

    def test_nova_attach_that_was_served_in_place_and_is_asked_for_anew(
            self) -> None:
        """The answer was lost, and there may be room by now."""
        old = dataclasses.replace(attached('b', 'old', 'attaching'),
                                  kind='iscsi')
        self.assertIs(How.RELOCATE,
                      place(row('reserved', old, reserved())).how)

    def test_nova_attach_at_home(self) -> None:
        found = place(row('reserved', reserved()), 'a')
        self.assertIs(How.FRONT, found.how)

    def test_nobody_gets_it_while_cinder_migrates_it(self) -> None:
        """What he wrote would stay with what the volume was."""
        for migration, instance, asking in itertools.product(
                ('starting', 'migrating', 'completing'), ('server', None),
                ('a', 'b', 'glance')):
            new = reserved(instance=instance)
            # The request for the other came twice, late.
            for others in ((), (attached(asking, status='attaching'),)):
                found = place(row('reserved', *others, new,
                                  migration=migration), asking, asking == 'b')
                self.assertIs(How.REFUSE, found.how)
                self.assertIn(f'migration status is {migration}', found.why)
            # One that has its answer already.
            found = place(row('attaching', attached('a', 'new', 'attaching'),
                              migration=migration), 'a')
            self.assertIs(How.FRONT, found.how)
        found = place(row('reserved', reserved(), migration='target:v'), 'a')
        self.assertIs(How.FRONT, found.how)

    def test_nova_attach_after_a_failed_migration(self) -> None:
        for migration in ('error', 'success'):
            found = place(row('reserved', reserved(), migration=migration))
            self.assertIs(How.RELOCATE, found.how)

    def test_nova_live_migration(self) -> None:
        for attachments in (
                (attached(), reserved()),
                (attached(), attached('b', 'new', 'attaching')),
                # What Cinder leaves of a request that failed.
                (attached(), reserved('left'), reserved())):
            found = place(row('in-use', *attachments))
            self.assertEqual((How.LIVE, PEER), (found.how, found.peer))

    def test_nova_attach_beside_what_a_failed_request_left(self) -> None:
        found = place(row('reserved', reserved('left'), reserved()))
        self.assertIs(How.RELOCATE, found.how)
        found = place(row('reserved', reserved('left', instance='other'),
                          reserved()))
        self.assertIs(How.REFUSE, found.how)

    def test_nova_cold_migration_beside_one_that_it_does_not_know(
            self) -> None:
        """Of a live migration to this node, the answer to which was lost."""
        lost = attached('a', 'lost', 'attaching')
        found = place(row('in-use', lost, reserved()))
        self.assertIs(How.RELOCATE, found.how)
        # And the one of a server that runs stays what it is.
        for others in ((attached(), lost), (lost, attached())):
            found = place(row('in-use', *others, reserved()))
            self.assertIs(How.LIVE, found.how)
        given = dataclasses.replace(lost, kind='local')
        for others in ((attached(), given), (given, attached())):
            found = place(row('in-use', *others, reserved()))
            self.assertIs(How.REFUSE, found.how)
            self.assertIn('attachment (lost, a)', found.why)

    def test_nova_live_migration_back_before_the_first_write(self) -> None:
        """Where it is the server may take the volume at any moment."""
        here, there = attached(), attached('b', 'there')
        for others in (
                (here, there),
                # The request for it came twice, late.
                (dataclasses.replace(here, status='attaching'), there)):
            found = place(dataclasses.replace(
                row('in-use', *others, reserved()),
                provider_id='1;offer=b@x/lv'), 'a')
            self.assertIs(How.REFUSE, found.how)
            self.assertIn('live-migrated to b@x', found.why)

    def test_nova_live_migration_of_another_server(self) -> None:
        found = place(row('in-use', attached(), reserved(instance='other')))
        self.assertIs(How.REFUSE, found.how)
        self.assertIn('old', found.why)

    def test_nova_live_migration_with_one_left_elsewhere(self) -> None:
        found = place(row('in-use', attached(), attached('c', 'left'),
                          reserved()))
        self.assertIs(How.REFUSE, found.how)
        self.assertIn('(left, c)', found.why)
        self.assertIn('attachment delete', found.why)

    def test_nobody_is_told_to_delete_the_attachment_of_a_running_server(
            self) -> None:
        found = place(row('in-use', attached('c'), reserved()))
        self.assertIs(How.REFUSE, found.how)
        self.assertIn('stop the server', found.why)
        self.assertNotIn('delete', found.why)

    def test_server_of_a_busy_volume_is_not_served_over_iscsi(self) -> None:
        for status, migration in (('uploading', None), ('backing-up', None),
                                  ('downloading', None),
                                  ('reserved', 'migrating'),
                                  ('reserved', 'starting'),
                                  # Cinder migrates an attached volume.
                                  ('reserved', 'target:v')):
            found = place(row(status, reserved(), migration=migration))
            self.assertIs(How.REFUSE, found.how, (status, migration))
            self.assertIn(migration or status, found.why)
        self.assertIn('reset-migration-status', found.why)

    def test_nova_attach_to_a_node_that_is_down(self) -> None:
        found = place(row('reserved', reserved()), up=False)
        self.assertIs(How.REFUSE, found.how)
        self.assertIn('down', found.why)
        self.assertIn(PEER, found.why)


class SeveralServersTest(base.TestCase):
    """Of a volume that they may have at the same time."""

    other = reserved('other', instance='other')

    def place(self, *attachments: Attachment, asking: str = 'b',
              status: str = 'in-use',
              **connector: typing.Any) -> attach_policy.Placement:
        return place(row(status, *attachments, multiattach=True), asking,
                     **connector)

    def test_the_first_takes_the_volume_to_its_node(self) -> None:
        self.assertIs(How.RELOCATE, self.place(reserved()).how)

    def test_another_one_is_served_in_place(self) -> None:
        for first in (attached(), attached('b'), attached('c'), reserved()):
            self.assertIs(How.ISCSI, self.place(first, self.other).how)
        self.assertIs(How.FRONT, self.place(attached(), self.other,
                                            asking='a').how)

    def test_a_live_migration_moves_the_volume_of_one_only(self) -> None:
        self.assertIs(How.LIVE, self.place(attached(), reserved()).how)
        other = dataclasses.replace(attached('c', 'other'), instance='other')
        for others in (other,), (self.other,):
            found = self.place(attached(), *others, reserved())
            self.assertIs(How.ISCSI, found.how)

    def test_one_that_is_served_can_move(self) -> None:
        self.assertIs(How.ISCSI, self.place(attached('c'), reserved()).how)

    def test_a_busy_volume_is_refused(self) -> None:
        found = self.place(attached(), self.other, status='backing-up')
        self.assertIs(How.REFUSE, found.how)

    def test_no_initiator(self) -> None:
        found = self.place(attached(), self.other, initiator=None)
        self.assertIs(How.REFUSE, found.how)
        self.assertIn('several servers', found.why)


class OtherTest(base.TestCase):
    """What is served in place."""

    def assert_in_place(self, found: rows.Row, asking: str = 'b') -> None:
        self.assertIs(How.ISCSI, place(found, asking).how)

    def test_glance_store(self) -> None:
        self.assert_in_place(row('reserved', reserved(instance=None)))

    def test_image_to_volume(self) -> None:
        self.assertIs(How.LOCAL, place(row('downloading'), 'a').how)

    def test_volume_to_image(self) -> None:
        self.assertIs(How.LOCAL, place(row('uploading'), 'a').how)

    def test_rekeyed_clone(self) -> None:
        self.assertIs(How.LOCAL, place(row('creating'), 'a').how)

    def test_backup(self) -> None:
        self.assert_in_place(row('backing-up'))

    def test_backup_of_an_attached_volume(self) -> None:
        self.assert_in_place(row('backing-up', attached()))

    def test_backup_on_the_home_node(self) -> None:
        self.assertIs(How.LOCAL, place(row('backing-up'), 'a').how)

    def test_restore(self) -> None:
        self.assert_in_place(row('restoring-backup'))

    def test_source_of_a_migration(self) -> None:
        for status in ('available', 'maintenance', 'retyping'):
            found = place(row(status, migration='migrating'), 'a')
            self.assertIs(How.LOCAL, found.how)

    def test_destination_of_a_migration(self) -> None:
        self.assert_in_place(row('available', migration='target:v'))

    def test_generic_revert(self) -> None:
        for status in ('in-use', 'reverting'):
            self.assertIs(How.LOCAL, place(row(status), 'a').how)

    def test_reimage(self) -> None:
        """By the volume's own node: a server waits for its end, not for it."""
        for status, how in (('downloading', How.LOCAL),
                            ('reserved', How.FRONT)):
            self.assertIs(how, place(row(status, reserved()), 'a').how)

    def test_status_error(self) -> None:
        for host in ('a', 'b', 'c'):
            found = place(row('error'), host, peer=host == 'b')
            self.assertIs(How.REFUSE, found.how, host)
            self.assertIn('status is error', found.why)

    def test_status_error_of_a_volume_that_is_used_here(self) -> None:
        found = place(row('error_extending', reserved()), 'a')
        self.assertIs(How.FRONT, found.how)

    def test_ironic_or_another_cloud(self) -> None:
        found = place(row('reserved', reserved()), 'ironic', peer=False)
        self.assertIs(How.ISCSI, found.how)

    def test_not_a_peer_and_no_initiator(self) -> None:
        found = place(row('reserved', reserved()), 'c', peer=False,
                      initiator=None)
        self.assertIs(How.REFUSE, found.how)
        self.assertIn('c has no cinder-volume service', found.why)

    def test_unknown_connector_fields_change_nothing(self) -> None:
        for host, how in (('a', How.FRONT), ('b', How.RELOCATE),
                          ('glance', How.ISCSI)):
            found = place(row('reserved', reserved()), host,
                          peer=host != 'glance', colour='blue', ip=7,
                          mountpoint='/dev/vdb', multipath='perhaps',
                          nested={'x': [1, {}]}, wwpns=[''])
            self.assertIs(how, found.how)

    def test_attachment_of_another_connector_is_not_taken(self) -> None:
        found = place(row('attaching', attached('c', 'new', 'attaching')))
        self.assertIs(How.ISCSI, found.how)
