# SPDX-License-Identifier: Apache-2.0
"""A loan whose borrower is lost ends when an operator says so."""

from __future__ import annotations

import contextlib
from unittest import mock

from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.service import births
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.service import operators

CLONE = VolumeId('c10e0000-0000-4000-8000-000000000000')


class ReleaseTestCase(operators.OperatorTestCase):

    hosts = ('a', 'b', 'c')
    refusal = (r'LV [-0-9a-f]+ on a@dmclone is not released: .*\. Nothing '
               r'was changed\.')

    def ask(self, record: str = '', lv: LvUuid | None = None
            ) -> messages.Plan:
        return self.others[0].process.world.peers.ask(
            self.a.name, messages.Release(lv or self.lv, record))

    def release(self) -> messages.Plan:
        return self.ask(self.ask().record)

    def tags(self) -> lv_tags.Tags:
        return lv_tags.Tags.parse(
            self.a.group.volumes[names.data_lv(self.lv)].tags)


class InterruptedTest(ReleaseTestCase):
    """Both nodes of a move lost power before its commit, one for ever.

    The other did once more, when it had just withdrawn the offer.
    """

    def setUp(self) -> None:
        super().setUp()

        def crash(call: ports.Call) -> None:
            if call.method == 'commit':
                self.lose(self.b)
            if call.method in ('commit', 'Discard'):
                self.a.lose_power()
        self.cloud.before = crash
        attachment = self.cloud.reserve(self.volume)
        with contextlib.suppress(ports.Killed):
            self.cloud.connect(self.volume, attachment, self.b)
        with contextlib.suppress(ports.Killed):
            self.a.start()
        self.assertIsNone(self.cloud.row(self.volume).offer)
        self.cloud.before = lambda call: None
        self.a.start()
        self.cloud.forget(self.volume, attachment)

    def test_a_node_that_answers_and_cannot_say(self) -> None:
        tag, = self.tags().lent
        attachment = self.cloud.reserve(self.volume)
        self.b.up, self.b.process = True, self.b.make_process()
        with mock.patch.object(self.b.group, 'report', side_effect=(
                exceptions.GroupLost(group='g', disk='/dev/sdx'))), (
                    self.assertRaises(exceptions.CannotServe)) as caught:
            self.cloud.connect(self.volume, attachment, self.a)
        self.assertIn(f'{tag.borrower}, and b@dmclone cannot show it: Volume '
                      'group g is not found', caught.exception.msg)
        self.assertNotIn('does not answer', caught.exception.msg)

    def test_the_volume_can_be_used_again(self) -> None:
        tag, = self.tags().lent
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(
                exceptions.CannotServe, 'the row knows nothing of the loan to '
                f'{tag.borrower}, and b@dmclone does not answer'):
            self.cloud.connect(self.volume, attachment, self.a)
        plan = self.release()
        self.assertEqual(
            f'LV volume-{self.lv} on a@dmclone is lent no more to '
            f'{tag.borrower}, which must be off, and stay off. It stays '
            f'volume {self.volume}.', plan.does)
        self.assertEqual([
            f'what {tag.borrower} may have of volume {self.volume} that is '
            'newer than this: the database knows nothing of it'],
            plan.gives_up)
        self.assertEqual((), self.tags().lent)
        path = self.cloud.connect(self.volume, attachment, self.a)
        self.assert_data(self.a, path)

    def test_a_node_that_was_installed_anew(self) -> None:
        """It answers, and the volume is reported."""
        self.reinstall()
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'may have newer data'):
            self.cloud.connect(self.volume, attachment, self.a)
        self.release()
        self.cloud.connect(self.volume, attachment, self.a)

    def reinstall(self) -> None:
        self.b.group.volumes.clear()
        self.b.group._durable.clear()
        self.b.group.uuid = GroupUuid('anew')
        self.down.clear()
        self.b.start()

    def test_a_plan_changes_nothing(self) -> None:
        before = self.state()
        self.ask()
        self.assertEqual(before, self.state())

    def test_one_that_has_reported_in(self) -> None:
        self.down.clear()
        with self.refused('has reported in within service_down_time'):
            self.ask()

    def test_one_that_comes_back_meanwhile(self) -> None:
        """It still has its copy."""
        plan = self.ask()
        self.down.clear()
        with mock.patch.object(type(self.b.process.loop), 'run_once'):
            self.b.start()
        with self.refused('answers, and has it'):
            self.ask(plan.record)

    def test_its_kernel_works(self) -> None:
        tag, = self.tags().lent
        loan = names.loan(self.lv, tag.lv)
        self.a.process.loop.run_once(everything=True)
        found = mock.Mock(sessions={'iqn.b'}, device=loan.path)
        with mock.patch.object(state.Stack, 'exports_of',
                               return_value={'iqn': found}), (
                self.refused('b@dmclone is logged in to this node')):
            self.ask()

    def test_only_what_was_agreed_to(self) -> None:
        with self.refused('not as it was when that was agreed to'):
            self.ask('something else')

    def test_the_second_of_two_operators(self) -> None:
        record = self.ask().record
        self.ask(record)
        with self.refused('it is lent to nobody'):
            self.ask(record)

    def test_at_once(self) -> None:
        with self.a.service.locked(self.volume), (
                self.assertRaisesRegex(exceptions.PeerRefused,
                                       'Another operation on volume')):
            self.ask()

    def test_an_empty_database(self) -> None:
        self.down.add(self.a.name)
        with self.refused('it may be the wrong one'):
            self.ask()

    def test_a_crash_at_each_step(self) -> None:
        """The loan stands or has ended; done again it has."""
        record = self.ask().record
        for step in range(20):
            left = [step]

            def crash(call: ports.Call) -> None:
                if call.node == self.a.name and not call.reads:
                    left[0] -= 1
                    if left[0] == -1:
                        self.a.lose_power()
            self.cloud.before = crash
            with contextlib.suppress(exceptions.PeerUnreachable,
                                     exceptions.PeerRefused):
                self.ask(record)
            self.cloud.before = lambda call: None
            if left[0] >= 0:
                break
            self.a.start()
            self.assertLessEqual(len(self.tags().lent), 1)
        self.assertGreater(step, 1)
        self.assertEqual((), self.tags().lent)


class MovedOnTest(ReleaseTestCase):
    """The volume went from a to b, and on to c; then b was lost."""

    def setUp(self) -> None:
        super().setUp()
        attachment, _ = self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.attach(self.volume, self.others[0])
        self.lose(self.b)

    def test_the_old_copy_goes(self) -> None:
        tag, = self.tags().lent
        plan = self.release()
        self.assertIn('When nobody else needs it, it is deleted if', plan.does)
        self.assertEqual([
            f'what {tag.borrower} has not copied of volume {self.volume}, for '
            'itself and for all that hydrates from it'], plan.gives_up)
        # At a boot it is not taken for the volume.
        self.assertTrue(self.tags().bars_front)
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)

    def test_another_loan_ends_with_that_of_the_volume(self) -> None:
        """Where the volume went stays known, in whatever order."""
        tag, = self.tags().lent
        for generation in (1, 9):
            self.a.group.retag(names.data_lv(self.lv), add=[
                lv_tags.print_tag(lv_tags.LoanTag(
                    generation, CLONE, self.b.name, LvUuid(CLONE), tag.group,
                    tag.initiator, tag.size))])
        with mock.patch.object(type(self.a.process.loop), 'run_once'):
            self.release()
        self.assertEqual(
            ((), lv_tags.PastTag(2, self.volume, tag.node, tag.lv)),
            (self.tags().lent, self.tags().past))

    def test_the_row_was_purged(self) -> None:
        """Then it can be forgotten, which was refused before."""
        with mock.patch.object(volumes.RowStore, 'find', return_value=[]):
            with self.assertRaisesRegex(exceptions.PeerRefused, 'need it'):
                self.forget()
            self.assertIn('until it is forgotten', self.release().does)
            self.assertTrue(self.tags().bars_front)
            self.forget()

    def test_it_was_deleted_while_an_old_database_was_in_use(self) -> None:
        self.cloud.db.update(self.volume, provider_id='0', _name_id=None,
                             host=f'{self.a.name}#pool')
        self.cloud.db.destroy(self.volume)
        self.release()
        self.assertEqual((), self.tags().lent)
        self.assertTrue(self.tags().bars_front)

    def forget(self) -> None:
        peers = self.others[0].process.world.peers
        plan = peers.ask(self.a.name, messages.Forget(self.lv, ''))
        peers.ask(self.a.name, messages.Forget(self.lv, plan.record))


class NeededTest(ReleaseTestCase):
    """Whoever could be asked, or taken back, is."""

    def test_what_can_be_recovered(self) -> None:
        self.relocated()
        self.lose(self.b)
        with self.refused(r'take it back \("cinder-dmclone recover"\)'):
            self.ask()

    def test_what_still_hydrates(self) -> None:
        self.relocated()
        with self.refused('take it back'):
            self.ask()

    def test_what_was_taken_back(self) -> None:
        """Else its own tag would stay that of an earlier generation."""
        self.relocated()
        self.lose(self.b)
        peers = self.others[0].process.world.peers
        plan = peers.ask(self.a.name, messages.TakeBack(self.volume, ''))
        peers.ask(self.a.name, messages.TakeBack(self.volume, plan.record))
        with self.refused('the driver itself ends that'):
            self.ask()
        self.cloud.settle()
        self.assertEqual(
            lv_tags.Tags(own=lv_tags.OwnTag(3, self.volume)), self.tags())

    def test_no_loan(self) -> None:
        with self.refused('it is lent to nobody'):
            self.ask()

    def test_no_lv(self) -> None:
        with self.refused('there is no such LV'):
            self.ask(lv=LvUuid(CLONE))

    def test_a_clone_that_is_lost(self) -> None:
        """First it is deleted; its node need not come back."""
        self.cloud.db.volume(CLONE, f'{self.b.name}#{cloud.POOL}')
        births.clone(self.b.service, CLONE, self.volume)
        self.cloud.db.update(CLONE, status='available')
        self.lose(self.b)
        with self.refused(f'volume {CLONE} is b@dmclone/.* or delete it'):
            self.ask()
        self.cloud.db.destroy(CLONE)
        self.release()
        self.assertEqual((), self.tags().lent)
        self.cloud.settle()
        # The volume itself is as it was.
        self.assertEqual({names.data_lv(self.lv)}, set(self.a.group.volumes))

    def test_one_of_two(self) -> None:
        """Only that which is lost ends."""
        for number, node in enumerate((self.b, self.others[0])):
            clone = VolumeId(f'c10e000{number}-0000-4000-8000-000000000000')
            self.cloud.db.volume(clone, f'{node.name}#{cloud.POOL}')
            births.clone(node.service, clone, self.volume)
            self.cloud.db.update(clone, status='available')
        self.lose(self.b)
        self.cloud.db.destroy('c10e0000-0000-4000-8000-000000000000')
        self.release()
        self.assertEqual(['c@dmclone'], [tag.node for tag in self.tags().lent])
