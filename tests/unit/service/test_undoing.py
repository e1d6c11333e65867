# SPDX-License-Identifier: Apache-2.0
"""An operator thinks better of it."""

from __future__ import annotations

import contextlib
import typing
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.releases import models
from cinder_dmclone.stack import lv_tags
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit.fake import storage
from tests.unit.service import operators
from tests.unit.service import test_forgetting
from tests.unit.service import test_giving_up

STRAY = test_forgetting.STRAY


class UndoTestCase(operators.OperatorTestCase):
    """What a crash at each step leaves is the one or the other."""

    kind: str

    def undo(self, node: cloud.Node, lv: LvUuid,
             record: str = '') -> messages.Plan:
        asking = self.others[0] if self.others else self.b
        return asking.process.world.peers.ask(
            node.name, messages.Undo(lv, self.kind, record))

    def crash_at_each_step(self, node: cloud.Node, lv: LvUuid,
                           tag: str) -> None:
        """Until it is done, the tag is there."""
        record, reached = self.undo(node, lv).record, []

        def tagged() -> bool:
            return tag in node.group.volumes[names.data_lv(lv)].tags
        for step in range(20):
            left = [step]

            def crash(call: typing.Any) -> None:
                if call.node == node.name and not call.reads:
                    left[0] -= 1
                    if left[0] == -1:
                        reached.append(call.method)
                        node.lose_power()
            self.cloud.before = crash
            with contextlib.suppress(exceptions.PeerUnreachable), (
                    mock.patch.object(type(node.process.loop), 'run_once')):
                self.undo(node, lv, record)
            self.cloud.before = lambda call: None
            if left[0] >= 0:
                break
            self.assertTrue(tagged(), step)
            with mock.patch.object(type(node.process.loop), 'run_once'):
                node.start()
        self.assertIn('retag', reached)
        self.assertFalse(tagged())


class ErasedTest(UndoTestCase):
    """A volume was being deleted when the database was restored."""

    kind = 'forgotten'
    refusal = (r'What was decided about LV [-0-9a-f]+ on a@dmclone stands: '
               r'.*\. Nothing was changed\.')

    def setUp(self) -> None:
        super().setUp()
        self.cloud.after = lambda call: (
            self.a.lose_power() if call.port == 'erase' else None)
        self.cloud.db.update(self.volume, deleted=True)
        with contextlib.suppress(ports.Killed):
            self.a.process.loop.run_once(everything=True)
        self.assertEqual([names.data_lv(self.lv)], self.a.erased)
        self.cloud.after = lambda call: None

    def restore(self) -> None:
        self.cloud.db.purge(models.Volume, self.volume)
        self.cloud.db.volume(self.volume, f'{self.a.name}#pool',
                             status='available', provider_id='1')
        self.a.start()

    def test_it_goes_all_the_same(self) -> None:
        self.a.start()
        self.assertEqual({}, self.a.group.volumes)

    def test_it_is_not_served(self) -> None:
        self.restore()
        self.assertEqual({}, self.a.mapper.mapped)
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'may be overwritten in part'):
            self.cloud.attach(self.volume, self.a)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)

    def test_an_operator_wants_what_is_left(self) -> None:
        self.restore()
        plan = self.undo(self.a, self.lv)
        self.assertEqual(
            f'LV volume-{self.lv} on a@dmclone is deleted no more. Until now: '
            f'its deletion had begun, and the row of volume {self.volume} '
            'names it: what it held may be overwritten in part.', plan.does)
        self.assertIn('compare it with a backup', plan.gives_up[0])
        self.undo(self.a, self.lv, plan.record)
        self.cloud.attach(self.volume, self.a)

    def test_what_was_begun_outlives_the_service(self) -> None:
        """The kernel knows that somebody has it open."""
        self.restore()
        with self.assertRaisesRegex(exceptions.PeerRefused,
                                    'it is being overwritten'), (
                mock.patch.object(self.a.mapper, 'open_count',
                                  lambda devnum: 1)):
            self.undo(self.a, self.lv, self.undo(self.a, self.lv).record)

    def test_an_erasure_ends_when_the_row_names_it_again(self) -> None:
        """Before, who does not want it must wait; nothing is undone then."""
        lv = self.a.group.volumes[names.data_lv(self.lv)]
        lv.blocks = dict.fromkeys(range(lv.size // storage.REGION), 'data')
        tags, refused = set(lv.tags), []

        def restored() -> None:
            if self.cloud.row(self.volume).deleted:
                self.cloud.db.purge(models.Volume, self.volume)
                self.cloud.db.volume(
                    self.volume, f'{self.a.name}#pool', status='available',
                    provider_id='1')
                with self.assertRaisesRegex(
                        exceptions.PeerRefused,
                        'it is being overwritten, and its disk is slow'):
                    self.undo(self.a, self.lv, self.undo(
                        self.a, self.lv).record)
                refused.append(lv.tags == tags)
        self.cloud.overwritten = restored
        self.a.start()
        self.assertEqual([True], refused)
        self.assertEqual(1, list(lv.blocks.values()).count(storage.ZEROS))
        self.undo(self.a, self.lv, self.undo(self.a, self.lv).record)
        self.cloud.attach(self.volume, self.a)
        self.assertIn('data', lv.blocks.values())


class ForgottenTest(UndoTestCase):
    """It was forgotten, and then the database was restored."""

    kind = 'forgotten'
    refusal = (r'What was decided about LV [-0-9a-f]+ on a@dmclone stands: '
               r'.*\. Nothing was changed\.')

    def setUp(self) -> None:
        super().setUp()
        self.own = lv_tags.print_tag(lv_tags.OwnTag(3, VolumeId(STRAY)))
        self.forgotten = lv_tags.print_tag(
            lv_tags.ForgottenTag(VolumeId(STRAY)))
        self.a.group.create(names.data_lv(STRAY), test_forgetting.GIB,
                            [self.own, self.forgotten])
        self.a.group.flush()

    def restore(self) -> None:
        self.cloud.db.volume(VolumeId(STRAY), f'{self.a.name}#pool',
                             status='available', provider_id='3')

    def test_it_is_the_volume_again(self) -> None:
        self.restore()
        before = self.state()
        plan = self.undo(self.a, STRAY)
        self.assertEqual(
            f'LV volume-{STRAY} on a@dmclone is forgotten no more. Until '
            'now: it was forgotten by an operator, and the row of volume '
            f'{STRAY} names it.', plan.does)
        self.assertIn('what was overwritten of it already', plan.gives_up[0])
        self.assertEqual(before, self.state())
        self.undo(self.a, STRAY, plan.record)
        self.assertEqual(
            {self.own}, self.a.group.volumes[names.data_lv(STRAY)].tags)
        self.cloud.attach(VolumeId(STRAY), self.a)

    def test_a_crash_at_each_step(self) -> None:
        self.restore()
        self.crash_at_each_step(self.a, STRAY, self.forgotten)

    def test_what_nobody_needs_is_deleted(self) -> None:
        with self.refused('it is being deleted'):
            self.undo(self.a, STRAY)

    def test_only_what_was_agreed_to(self) -> None:
        self.restore()
        with self.refused('not as it was when that was agreed to'):
            self.undo(self.a, STRAY, 'something else')

    def test_the_second_of_two_operators(self) -> None:
        self.restore()
        record = self.undo(self.a, STRAY).record
        self.undo(self.a, STRAY, record)
        with self.refused('nobody has decided that it is forgotten'):
            self.undo(self.a, STRAY, record)

    def test_no_lv(self) -> None:
        with self.refused('nobody has decided that it is forgotten'):
            self.undo(self.a, LvUuid('6b6b6b6b-0000-4000-8000-000000000000'))


class GivenUpTest(test_giving_up.GivenUpTestCase, UndoTestCase):
    """The lender was lost, and is there again."""

    kind = 'lost'
    refusal = ForgottenTest.refusal.replace('a@', 'b@')

    def setUp(self) -> None:
        super().setUp()
        self.given_up()
        self.copy = self.cloud.row(self.volume).lv
        # As the base class has it for what was given up.
        self.refusal = type(self).refusal

    def back(self) -> None:
        self.down.clear()
        self.a.start()

    def test_what_has_not_arrived_is_waited_for(self) -> None:
        self.back()
        plan = self.undo(self.b, self.copy)
        self.assertEqual(
            f'What has not arrived of volume {self.volume} on b@dmclone '
            f'arrives from a@dmclone/{self.lv}, which is there again. Until '
            'then reads of it wait.', plan.does)
        with self.assertRaises(mapped.Failed):
            self.read(1)
        self.undo(self.b, self.copy, plan.record)
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assertEqual(
            ['written on b', *(f'written on a: {region}' for region in (1, 2)),
             'written on b'], [self.read(region) for region in range(4)])

    def test_a_crash_at_each_step(self) -> None:
        self.back()
        lv = self.b.group.volumes[names.data_lv(self.copy)]
        tag, = (tag for tag in lv.tags if '.lost/' in tag)
        self.crash_at_each_step(self.b, self.copy, tag)

    def test_the_other_command(self) -> None:
        self.back()
        self.kind = 'forgotten'
        with self.refused('nobody has decided that it is forgotten'):
            self.undo(self.b, self.copy)

    def test_a_lender_that_is_away(self) -> None:
        with self.refused('a@dmclone did not answer'):
            self.undo(self.b, self.copy)

    def test_a_lender_that_was_installed_anew(self) -> None:
        self.a.group.volumes.clear()
        self.a.group._durable.clear()
        self.back()
        with self.refused(f'its lender a@dmclone/{self.lv} is missing, and '
                          'has 0 bytes of'):
            self.undo(self.b, self.copy)

    def test_a_volume_that_was_taken_back_meanwhile(self) -> None:
        self.back()
        self.cloud.db.update(self.volume, host=f'{self.a.name}#pool',
                             _name_id=None, provider_id='3')
        with self.refused('it needs a look'):
            self.undo(self.b, self.copy)
