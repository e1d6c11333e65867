# SPDX-License-Identifier: Apache-2.0
"""Servers on hosts without this backend: who is admitted, and what waits."""

from __future__ import annotations

import dataclasses
import types
import typing
from unittest import mock

from oslo_serialization import jsonutils

from cinder_dmclone import exceptions
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.service import connections
from cinder_dmclone.service import images
from cinder_dmclone.service import snapshots
from tests.unit import base
from tests.unit.fake import mapped
from tests.unit.fake import ports

from cinder_dmclone import driver  # noqa: E402


class ServedTest(base.CloudTestCase):

    def serve(self, name: str) -> tuple[str, dict[str, typing.Any]]:
        """Attach to a server on a host without the backend."""
        attachment = self.cloud.reserve(self.volume)
        connector = {'host': name, 'initiator': f'iqn.{name}'}
        info = connections.connect(self.cloud.home(self.volume).service,
                                   self.volume, connector)
        self.cloud.db.update_attachment(
            attachment, connector=jsonutils.dumps(connector),
            connection_info=jsonutils.dumps(info))
        self.cloud.complete(self.volume, attachment)
        return attachment, info['data']

    def admitted(self) -> dict[str, str]:
        """Secrets by initiator."""
        export, = self.a.targets.exports.values()
        return {grant.initiator: grant.password for grant in export.grants}

    def leave(self, attachment: str) -> None:
        """An attachment goes without the driver being told."""
        self.cloud.db.drop_attachment(attachment)
        self.cloud.settle()


class AdmittedTest(ServedTest):

    def setUp(self) -> None:
        super().setUp()
        self.first, self.one = self.serve('one')
        self.second, self.other = self.serve('other')

    def test_each_initiator_has_a_secret_of_its_own(self) -> None:
        self.assertEqual({'iqn.one': self.one['auth_password'],
                          'iqn.other': self.other['auth_password']},
                         self.admitted())
        self.assertNotEqual(*self.admitted().values())

    def test_who_has_no_attachment_any_more_is_not_admitted(self) -> None:
        kept = self.admitted()['iqn.one']
        self.leave(self.second)
        self.assertEqual({'iqn.one': kept}, self.admitted())

    def test_what_a_host_has_by_two_attachments_ends_with_the_last(
            self) -> None:
        third, _ = self.serve('other')
        connector = {'host': 'other', 'initiator': 'iqn.other'}
        for attachment, left in ((third, {'iqn.one', 'iqn.other'}),
                                 (self.second, {'iqn.one'})):
            connections.disconnect(self.a.service, self.volume, connector)
            self.cloud.db.drop_attachment(attachment)
            self.assertEqual(left, set(self.admitted()))

    def test_a_session_that_runs_is_not_ended(self) -> None:
        with mock.patch.object(self.cloud, 'logged_in',
                               lambda *_: {'iqn.other'}):
            self.leave(self.second)
            self.assertEqual({'iqn.one', 'iqn.other'}, set(self.admitted()))

    def test_nobody_keeps_what_becomes_another_projects(self) -> None:
        """Who has connected it without an attachment, and is logged in."""
        for attachment in (self.first, self.second):
            self.cloud.db.drop_attachment(attachment)
        self.cloud.db.update(self.volume, status='available')
        made = driver.DMCloneVolumeDriver.__new__(driver.DMCloneVolumeDriver)
        made._service = self.b.service
        reader = {'host': 'reader', 'initiator': 'iqn.reader'}
        with mock.patch.object(self.cloud, 'logged_in',
                               lambda *_: {'iqn.one', 'iqn.other'}):
            self.cloud.settle()
            self.assertEqual({'iqn.one', 'iqn.other'}, set(self.admitted()))
            # So does who asks for it while it is uploaded.
            self.cloud.db.update(self.volume, status='uploading')
            connections.connect(self.a.service, self.volume, reader)
            self.cloud.db.update(self.volume, status='awaiting-transfer')
            self.cloud.settle()
            self.assertEqual(2, len(self.a.targets.exports))
            exports = dict(self.a.targets.exports)
            self.cloud.db.update(self.volume, status='available')
            # It comes twice, late: a new owner may be served by now.
            made.accept_transfer(None, types.SimpleNamespace(id=self.volume),
                                 'user', 'project')
            self.assertEqual(exports, self.a.targets.exports)
            self.cloud.db.update(self.volume, status='awaiting-transfer')
            made.accept_transfer(None, types.SimpleNamespace(id=self.volume),
                                 'user', 'project')
            self.assertEqual({}, self.a.targets.exports)
            self.assertEqual({}, self.a.mapper.mapped)
            for host in ('reader', self.a.host):
                with self.assertRaisesRegex(exceptions.CannotServe,
                                            'awaiting-transfer'):
                    connections.connect(self.a.service, self.volume,
                                        {**reader, 'host': host})

    def test_who_is_about_to_be_connected_stays_admitted(self) -> None:
        """Cinder writes the connector after the driver has answered."""
        self.cloud.db.update_attachment(self.second, connector=None)
        self.cloud.settle()
        self.assertEqual({'iqn.one', 'iqn.other'}, set(self.admitted()))


class TargetTest(ServedTest):
    """What the target of a server elsewhere is after a boot of its node."""

    def test_one_that_was_made_in_part_is_completed(self) -> None:
        self.serve('one')
        self.a.lose_power()
        half: set[str] = set()
        ensure, found = self.a.targets.ensure, self.a.targets.list

        def fail(export: targets.Export) -> None:
            ensure(export)
            half.add(export.iqn)
            raise exceptions.HelperEnded(command='ensure')

        def show(*arguments: typing.Any) -> dict[str, targets.ExportState]:
            return {iqn: dataclasses.replace(shown, enabled=iqn not in half)
                    for iqn, shown in found(*arguments).items()}

        def finish(export: targets.Export) -> None:
            ensure(export)
            half.discard(export.iqn)
        with mock.patch.object(self.a.targets, 'list', show):
            with mock.patch.object(self.a.targets, 'ensure', fail):
                self.a.start()
            self.assertEqual(1, len(half))
            with mock.patch.object(self.a.targets, 'ensure', finish):
                self.cloud.settle()
            self.assertEqual(set(), half)

    def test_a_disk_is_the_same_after_a_cut(self) -> None:
        """A host would take one with another serial for another disk."""
        self.serve('one')
        export, = self.a.targets.exports.values()
        found = SnapshotId(self.cloud.db.snapshot(self.volume, 'creating'))
        snapshots.create(self.a.service, self.volume, found)
        self.cloud.settle()
        self.assertNotEqual(self.lv, self.cloud.row(self.volume).lv)
        self.a.lose_power()
        self.a.start()
        self.cloud.settle()
        again = self.a.targets.exports[export.iqn]
        self.assertEqual(export.serial, again.serial)


class HydratingTest(ServedTest):

    def test_reads_do_not_wait_in_the_target(self) -> None:
        """H18: nobody could log in there, the lender's borrowers neither."""
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.serve('elsewhere')
        self.a.lose_power()
        self.cloud.lose_paths()
        self.b.process.loop.enqueue(self.volume)
        self.cloud.settle(4)
        self.assertFalse(self.source().table.queues)
        self.a.start()
        self.cloud.settle()
        row = self.cloud.row(self.volume)
        self.assertEqual((self.b.name, None), (row.node, row.source))
        self.assert_no_complaints()

    def test_nothing_copies_in_vain_when_it_is_away_again(self) -> None:
        """The first outage lets reads fail, and so it stays."""
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.serve('elsewhere')
        for _ in range(2):
            self.cloud.partition(self.a, self.b)
            self.cloud.settle(4)
            self.assertFalse(self.clone().hydration)
            self.cloud.heal()
            self.cloud.tick(1)
            self.assertTrue(self.clone().hydration)
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)

    def test_a_server_here_waits_from_its_first_read_on(self) -> None:
        """Nova formats an encrypted volume if that fails."""
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        attachment, _ = self.serve('elsewhere')
        self.cloud.partition(self.a, self.b)
        self.b.process.loop.enqueue(self.volume)
        self.cloud.settle(4)
        self.assertFalse(self.source().table.queues)
        self.cloud.forget(self.volume, attachment)

        queues: list[bool] = []

        def look(call: ports.Call) -> None:
            if call.method == 'apply' and '-front-' in call.arguments[0]:
                queues.append(self.source().table.queues)
        self.cloud.before = look
        _, path = self.cloud.attach(self.volume, self.b)
        self.assertEqual({True}, set(queues))
        with self.assertRaises(mapped.Queued):
            self.b.mapper.read(path, 0)
        self.cloud.heal()
        self.cloud.settle()
        self.assert_data(self.b, path)

    def test_an_image_of_it_waits_from_its_first_read_on(self) -> None:
        """Cinder takes what fails for the end of it."""
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.serve('elsewhere')
        self.cloud.partition(self.a, self.b)
        self.b.process.loop.enqueue(self.volume)
        self.cloud.settle(4)
        self.assertFalse(self.source().table.queues)
        with images.readable(self.b.service, self.volume) as path:
            with self.assertRaises(mapped.Queued):
                self.b.mapper.read(path, 0)
        self.cloud.settle(4)
        self.assertFalse(self.source().table.queues)

    def source(self) -> typing.Any:
        return self.device('-source-')

    def clone(self) -> typing.Any:
        return self.device('-clone-')

    def device(self, kind: str) -> typing.Any:
        found, = (found for name, found in self.b.mapper.mapped.items()
                  if kind in name)
        return found
