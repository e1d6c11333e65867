# SPDX-License-Identifier: Apache-2.0
"""Messages that come late, twice or never, and stale requests."""

from __future__ import annotations

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from cinder_dmclone.service import images
from cinder_dmclone.service import migrate
from cinder_dmclone.service import volumes
from tests.unit import base
from tests.unit.fake import ports

Fate = ports.Fate


class MessageTest(base.CloudTestCase):

    def test_prepare_twice_is_one_copy(self) -> None:
        """H6: a duplicated message gets the same answer."""
        self.fates('Prepare', Fate.TWICE)
        _, path = self.relocated()
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assert_settled()

    def test_late_prepare_builds_nothing(self) -> None:
        """H6: its offer was withdrawn long ago."""
        self.fates('Prepare', Fate.LATE)
        attachment = self.cloud.reserve(self.volume)
        self.assertRaises(exceptions.PeerUnreachable, self.cloud.connect,
                          self.volume, attachment, self.b)
        self.cloud.forget(self.volume, attachment)
        self.cloud.deliver_late()
        self.assertEqual({}, self.b.group.volumes)
        self.cloud.settle()
        self.assert_unmoved()

    def test_late_prepare_during_the_next_attempt(self) -> None:
        """H6: the first attempt's message arrives after the second."""
        self.fates('Prepare', Fate.LATE)
        attachment = self.cloud.reserve(self.volume)
        self.assertRaises(exceptions.PeerUnreachable, self.cloud.connect,
                          self.volume, attachment, self.b)
        path = self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.deliver_late()
        self.assert_data(self.b, path)
        self.cloud.complete(self.volume, attachment)
        self.cloud.settle()
        self.assert_settled()

    def test_late_discard_spares_the_next_attempt(self) -> None:
        """H6: the first attempt's abort arrives after the commit."""
        self.fates('Prepare', Fate.UNANSWERED)
        attachment = self.cloud.reserve(self.volume)
        late = self.cloud.fate

        def fate(message: ports.Message) -> Fate:
            return Fate.LATE if message.request == 'Discard' else (
                late(message))
        self.cloud.fate = fate
        self.assertRaises(exceptions.PeerUnreachable, self.cloud.connect,
                          self.volume, attachment, self.b)
        path = self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.complete(self.volume, attachment)
        self.cloud.deliver_late()
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assert_settled()

    def test_discard_of_a_committed_copy_is_refused(self) -> None:
        """H6: whatever a message says, a fresh row decides."""
        self.relocated()
        lv = self.cloud.row(self.volume).lv
        for _ in range(2):
            self.assertRaises(
                exceptions.PeerRefused, endpoint.answer, self.b.service,
                messages.Discard(self.volume, lv))
            self.cloud.settle()
        self.assert_settled()

    def test_discard_for_another_volume_is_refused(self) -> None:
        """Cinder copies records, with what they offer."""
        other = self.cloud.create(self.a)
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.cloud.migrate(self.volume, self.b)
        offer = self.cloud.row(self.volume).offer
        assert offer
        with self.assertRaisesRegex(exceptions.PeerRefused, 'still names'):
            endpoint.answer(self.b.service, messages.Discard(other, offer.lv))
        self.assertIn(names.data_lv(offer.lv), self.b.group.volumes)

    def test_prepare_of_what_was_the_volume_is_refused(self) -> None:
        """A database of before the commit offers it once more."""
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        second, _ = self.cloud.migrate(self.volume, self.b)
        row = self.cloud.row(self.volume)
        assert row.offer
        connector = self.a.connector
        self.a.mapper.close(path)
        connections.disconnect(self.a.service, self.volume, connector)
        self.b.process.loop.run_once(everything=True)
        self.cloud.db.update(self.volume, host=f'{self.a.name}#pool',
                             _name_id=None, provider_id=row.provider_id)
        self.cloud.db.drop_attachment(second)
        with self.assertRaisesRegex(exceptions.PeerRefused, 'more than a'):
            self.cloud.migrate(self.volume, self.b)
        self.assertIn(names.data_lv(row.offer.lv), self.b.group.volumes)

    def test_discard_of_an_offered_copy_is_refused(self) -> None:
        """H6: an abort is a change of the row before it is a message."""
        refused = []

        def before(call: ports.Call) -> None:
            if call.method == 'commit':
                self.cloud.before = lambda call: None
                offer = self.cloud.row(self.volume).offer
                assert offer
                lv = offer.lv
                with self.assertRaises(exceptions.PeerRefused) as caught:
                    endpoint.answer(self.b.service,
                                    messages.Discard(self.volume, lv))
                refused.append(caught.exception)
        self.cloud.before = before
        _, path = self.relocated()
        self.assertEqual(1, len(refused))
        self.assert_data(self.b, path)

    def test_notices_destroy_nothing(self) -> None:
        """H6: a cast in the queue of a dead node never expires."""
        self.relocated()
        for _ in range(3):
            for node in (self.a, self.b):
                endpoint.answer(node.service, messages.Notify(self.volume))
            self.cloud.tick()
        self.cloud.settle()
        self.assert_settled()

    def test_lost_notices_delay_nothing_for_ever(self) -> None:
        self.relocated()
        for _ in range(20):
            self.cloud.late.clear()
            self.cloud.tick()
        # The lender looks by itself, at first often, then every minute.
        self.cloud.settle()
        self.assert_settled()


class StaleRequestTest(base.CloudTestCase):

    def test_what_a_late_request_made_does_not_stay(self) -> None:
        """Its attachment is gone; nobody will end this connection."""
        def before(call: ports.Call) -> None:
            # The look that the request itself has called for.
            if (call.port, call.method) == ('dm', 'apply'):
                self.a.process.loop.run_once()
        for connector in (self.a.connector,
                          {'host': 'x', 'initiator': 'iqn.2001-04.x:y'}):
            self.cloud.before = before
            connections.connect(self.a.service, self.volume, connector)
            self.assertNotEqual({}, self.a.mapper.mapped)
            self.cloud.before = lambda call: None
            self.cloud.settle()
            self.assert_settled()

    def test_an_export_waits_for_its_connector(self) -> None:
        """Cinder writes it down after the driver has answered."""
        self.cloud.attach(self.volume, self.a)
        second = self.cloud.db.attachment(self.volume, instance_uuid=None)
        connections.connect(self.a.service, self.volume, {
            'host': 'x', 'initiator': 'iqn.2001-04.x:y'})
        self.cloud.settle(3)
        self.assertEqual(1, len(self.a.targets.exports))
        self.cloud.db.drop_attachment(second)
        self.a.process.loop.enqueue(self.volume)
        self.cloud.settle()
        self.assert_settled()

    def test_late_requests_reach_a_after_the_commit(self) -> None:
        """H15: a stale cast must not work on the frozen copy."""
        self.relocated()
        service = self.a.service
        calls = {
            'delete': lambda: volumes.delete(service, self.volume),
            'copy': lambda: images.local_path(service,
                                              self.volume).__enter__(),
            'migrate': lambda: migrate.migrate(service, self.volume,
                                               f'{self.b.name}#pool')}
        before = dict(self.a.mapper.mapped)
        for name, call in calls.items():
            with self.subTest(name):
                self.assertRaises(exceptions.NotHome, call)
        self.assertEqual(before, self.a.mapper.mapped)
        self.cloud.settle()
        self.assert_settled()

    def test_own_reconciler_does_not_undo_the_seal(self) -> None:
        """H22: between seal and commit nobody makes a front on a."""
        fronts: list[list[str]] = []

        def before(call: ports.Call) -> None:
            if call.method == 'commit':
                self.cloud.before = lambda call: None
                self.a.process.loop.run_once(everything=True)
                fronts.append([name for name in self.a.mapper.mapped
                               if 'front' in name])
                self.assertIsNotNone(self.cloud.row(self.volume).offer)
        self.cloud.before = before
        _, path = self.relocated()
        self.assertEqual([[]], fronts)
        self.assert_data(self.b, path)

    def test_own_reconciler_keeps_a_front_that_was_just_returned(
            self) -> None:
        """H22: Cinder writes the attachment after the path was returned."""
        attachment = self.cloud.reserve(self.volume)
        for node in (self.a, self.b):
            info = connections.connect(self.cloud.home(self.volume).service,
                                       self.volume, node.connector)
            node.process.loop.run_once(everything=True)
            self.cloud.settle(3)
            name = info['data']['device_path'].rpartition('/')[2]
            self.assertIn(name, node.mapper.mapped)
        self.cloud.forget(self.volume, attachment)
