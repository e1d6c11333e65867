# SPDX-License-Identifier: Apache-2.0
"""What is kept only because of a doubt goes when an operator says so."""

from __future__ import annotations

import typing
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile import questions
from cinder_dmclone.releases import models
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import base
from tests.unit.service import operators

STRAY = LvUuid('5a5a5a5a-0000-4000-8000-000000000000')
GIB = units.Bytes.from_gib(1)


class ForgetTestCase(operators.OperatorTestCase):
    """An LV whose row was purged is on a."""

    refusal = (r'LV [-0-9a-f]+ on a@dmclone is not forgotten: .*\. Nothing '
               r'was changed\.')

    def setUp(self) -> None:
        super().setUp()
        self.own = lv_tags.print_tag(lv_tags.OwnTag(3, VolumeId(STRAY)))
        self.a.group.create(names.data_lv(STRAY), GIB, [self.own])
        self.a.group.flush()

    def ask(self, lv: LvUuid = STRAY, record: str = '') -> messages.Plan:
        return self.b.process.world.peers.ask(
            self.a.name, messages.Forget(lv, record))

    def state(self) -> object:
        """In the end: it may have been left to the reconciler."""
        self.cloud.settle()
        return super().state()


class ForgetTest(ForgetTestCase):

    def test_a_plan_shows_what_it_was_and_changes_nothing(self) -> None:
        before = self.state()
        plan = self.ask()
        self.assertEqual(before, self.state())
        self.assertRegex(plan.does, f'^LV volume-{STRAY} on a@dmclone is '
                         'deleted. It was kept because the database knows '
                         'nothing of this LV')
        self.assertEqual([f'the {GIB} bytes that it has',
                          f'what it says of itself: {self.own}'],
                         plan.gives_up)

    def test_it_is_erased_and_deleted(self) -> None:
        self.ask(record=self.ask().record)
        self.cloud.settle()
        self.assertEqual({names.data_lv(self.lv)}, set(self.a.group.volumes))
        self.assertEqual([names.data_lv(STRAY)], self.a.erased)

    def test_it_outlives_a_crash(self) -> None:
        plan = self.ask()
        with mock.patch.object(type(self.a.process.loop), 'run_once'):
            self.ask(record=plan.record)
        self.a.lose_power()
        self.a.start()
        # At boot alone it got no front.
        self.assertEqual({}, {
            name: found for name, found in self.a.mapper.mapped.items()
            if STRAY in name})
        self.cloud.settle()
        self.assertNotIn(names.data_lv(STRAY), self.a.group.volumes)

    def test_what_came_back_when_the_volume_was_taken_back(self) -> None:
        """Its row is of a later generation and names another."""
        self.cloud.db.volume(VolumeId(STRAY), f'{self.b.name}#pool',
                             status='available', provider_id='5',
                             _name_id=self.lv)
        self.a.kill()
        self.a.start()
        self.cloud.settle()
        self.a.lose_power()
        with mock.patch.object(type(self.a.process.loop), 'run_once'):
            self.a.start()
        # At boot alone it got no front.
        self.assertEqual({}, {
            name: found for name, found in self.a.mapper.mapped.items()
            if STRAY in name})
        plan = self.ask()
        self.assertIn('the LV claims to be the volume', plan.does)
        self.ask(record=plan.record)
        self.cloud.settle()
        self.assertNotIn(names.data_lv(STRAY), self.a.group.volumes)

    def test_its_row_names_another_backend(self) -> None:
        """As Cinder may write it and move nothing (retype)."""
        self.cloud.db.volume(VolumeId(STRAY), 'c@lvm#pool',
                             status='available', provider_id='3')
        with self.refused('it may be newer than the volume'):
            self.ask()
        self.cloud.db.update(VolumeId(STRAY), _name_id=self.volume)
        self.ask(record=self.ask().record)
        self.cloud.settle()
        self.assertNotIn(names.data_lv(STRAY), self.a.group.volumes)

    def test_what_was_deleted_while_an_old_database_was_in_use(self) -> None:
        """The volume was this LV already, of which that knew nothing."""
        self.restore()
        self.cloud.db.destroy(STRAY)
        before = self.state()
        plan = self.ask()
        self.assertIn('the database went back in time', plan.does)
        self.assertIn(f'what volume {STRAY} was at generation 3: it was '
                      'deleted at generation 2, by a database that had gone '
                      'back in time', plan.gives_up)
        self.assertEqual(before, self.state())
        self.ask(record=plan.record)
        self.cloud.settle()
        self.assertNotIn(names.data_lv(STRAY), self.a.group.volumes)

    def test_it_was_forgotten_and_its_volume_was_not_deleted(self) -> None:
        """In the database that is in use by now."""
        self.restore()
        self.cloud.db.destroy(STRAY)
        plan = self.ask()
        self.restore()
        with self.refused('it may be newer than the volume'):
            self.ask(record=plan.record)

    def restore(self) -> None:
        """The database is one that knows the volume as another LV."""
        self.cloud.db.purge(models.Volume, STRAY)
        self.cloud.db.volume(VolumeId(STRAY), f'{self.b.name}#pool',
                             status='available', provider_id='2',
                             _name_id=self.lv)

    def test_a_database_that_is_replaced_before_it_is_gone(self) -> None:
        self.restore()
        self.cloud.db.destroy(STRAY)
        with mock.patch.object(type(self.a.process.loop), 'run_once'):
            self.ask(record=self.ask().record)
        self.restore()
        self.cloud.settle()
        self.assertIn(names.data_lv(STRAY), self.a.group.volumes)
        self.assertEqual('it was forgotten by an operator, and may be newer '
                         f'than volume {STRAY}', self.a.process.loop.judge(
                             STRAY, VolumeId(STRAY))[0].why)

    # -- what is not forgotten ----------------------------------------------

    def test_a_volume(self) -> None:
        with self.refused(f'the row of volume {self.volume} names it'):
            self.ask(self.lv)

    def test_whose_row_cannot_be_read(self) -> None:
        """It may name any LV."""
        self.cloud.db.volume(VolumeId(STRAY), f'{self.b.name}#pool',
                             status='available', provider_id='2;nonsense')
        with self.refused("Cannot read the record '2;nonsense'"):
            self.ask()

    def test_a_lender_and_a_copy(self) -> None:
        self.relocated()
        with self.assertRaisesRegex(exceptions.PeerRefused, 'names it'):
            self.ask(self.lv)
        copy = self.cloud.row(self.volume).lv
        with self.assertRaisesRegex(exceptions.PeerRefused, 'names it'):
            self.a.process.world.peers.ask(
                self.b.name, messages.Forget(copy, ''))

    def test_what_may_be_newer_than_the_volume(self) -> None:
        """The database was restored."""
        self.cloud.db.volume(VolumeId(STRAY), f'{self.b.name}#pool',
                             status='available', provider_id='2',
                             _name_id=self.lv)
        with self.refused('it may be newer than the volume'):
            self.ask()

    def test_a_snapshot(self) -> None:
        self.cloud.db.snapshot(STRAY, id=STRAY)
        tag = lv_tags.SnapTag(3, typing.cast(typing.Any, STRAY),
                              VolumeId(STRAY), GIB)
        self.a.group.retag(names.data_lv(STRAY),
                           add=[lv_tags.print_tag(tag)])
        self.a.group.flush()
        with self.refused('others may need it'):
            self.ask()

    def test_what_somebody_uses(self) -> None:
        self.a.lose_power()
        with mock.patch.object(type(self.a.process.loop), 'run_once'):
            self.a.start()
        front = names.front(self.a.host, STRAY)
        self.a.mapper.open(front.path)
        with self.refused(f'{front} is in use'):
            self.ask()

    def test_no_lv(self) -> None:
        with self.refused('there is no such LV'):
            self.ask(LvUuid('6b6b6b6b-0000-4000-8000-000000000000'))

    def test_tags_of_a_later_release(self) -> None:
        self.a.group.retag(names.data_lv(STRAY), add=['dmclone.2.own/x'])
        self.a.group.flush()
        with self.refused('which this release does not know'):
            self.ask()

    def test_an_empty_database(self) -> None:
        """It knows nothing of any LV, nor of the service."""
        self.down.add(self.a.name)
        with self.refused('it may be the wrong one'):
            self.ask()

    # -- two operators ------------------------------------------------------

    def test_only_what_was_agreed_to(self) -> None:
        plan = self.ask()
        self.a.group.retag(names.data_lv(STRAY), remove=[self.own])
        self.a.group.flush()
        with self.refused('not as it was when that was agreed to'):
            self.ask(record=plan.record)

    def test_the_second_of_two(self) -> None:
        plans = [self.ask(), self.ask()]
        for plan in plans:
            self.ask(record=plan.record)
        self.cloud.settle()
        with self.refused('there is no such LV'):
            self.ask(record=plans[0].record)

    def test_both_at_once(self) -> None:
        with self.a.service.locked(VolumeId(STRAY)), (
                self.assertRaisesRegex(exceptions.PeerRefused,
                                       'Another operation on volume')):
            self.ask()


class FindOutTest(base.TestCase):

    def test_no_home_is_asked_to_hand_its_volume_over(self) -> None:
        """It is only shown what would be forgotten."""
        asked = mock.Mock(return_value=(Decision(
            Question.CLAIM, ask=(Location(NodeName('b'), STRAY),)), None))
        questions.find_out(typing.cast(typing.Any, None), asked)
        asked.assert_called_once()


class HalfMadeTest(ForgetTestCase):
    """Metadata has a group of its own."""

    hosts = ('a', 'b', 'c')
    options = {'own_metadata': True}

    def test_a_copy_whose_metadata_no_power_cut_left(self) -> None:
        """It may have been the volume; its home says that it is not."""
        home, = self.others
        self.a.group.retag(names.data_lv(STRAY), remove=[self.own], add=[
            lv_tags.print_tag(tag) for tag in (
                lv_tags.CopyTag(2, VolumeId(STRAY)), lv_tags.SourceTag(
                    home.name, self.lv, 'iqn.c', 'c:3260', GIB, 512))])
        self.cloud.db.volume(VolumeId(STRAY), f'{home.name}#pool',
                             status='available', provider_id='5',
                             _name_id=self.lv)
        plan = self.ask()
        self.assertIn('it was written, or may have been', plan.does)
        home.kill()
        with self.refused('c@dmclone has to be asked first, and does not '
                          'answer'):
            self.ask(record=plan.record)
        home.start()
        self.ask(record=plan.record)
        self.cloud.settle()
        self.assertNotIn(names.data_lv(STRAY), self.a.group.volumes)
