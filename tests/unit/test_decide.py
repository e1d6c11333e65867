# SPDX-License-Identifier: Apache-2.0
"""The state table: row, tags on the lender A, tags on the borrower B.

Live migration and chains are shown as a whole in test_migration and
test_chain.
"""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.database.attachment import Attachment
from cinder_dmclone.database import rows
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.dm import status
from cinder_dmclone.host.dm import table
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.host import lvm
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import actions
from cinder_dmclone.reconcile import decide
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Step
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone.sysfs import sessions
from cinder_dmclone import units
from tests.unit import base

A, B = NodeName('a@x'), NodeName('b@x')
VOLUME = VolumeId('00000000-0000-0000-0000-00000000000e')
X = LvUuid('00000000-0000-0000-0000-000000000001')
Y = LvUuid('00000000-0000-0000-0000-000000000002')
GROUP_B = GroupUuid('group of b')
AX, BY = Location(A, X), Location(B, Y)
SIZE = units.Bytes(1 << 30)

OWN_X = lv_tags.OwnTag(1, VOLUME)
OWN_Y = lv_tags.OwnTag(2, VOLUME)
COPY_Y = lv_tags.CopyTag(2, VOLUME)
FROM_X = lv_tags.SourceTag(A, X, 'iqn.x', 'a:3260', SIZE, 512)
LENT_Y = lv_tags.LoanTag(2, VOLUME, B, Y, GROUP_B, 'iqn.b', SIZE)

AT_A = rows.Row(VOLUME, f'{A}#p', X, 1, 'available', None, '1', False)
OFFERED = dataclasses.replace(AT_A, status='reserved',
                              provider_id=f'1;offer={BY}')
HYDRATING = dataclasses.replace(AT_A, host=f'{B}#p', name_id=Y,
                                provider_id=f'2;from={AX}')
AT_B = dataclasses.replace(HYDRATING, provider_id='2')

COMPLETE = messages.Shown(LvState.COMPLETE, 2, SIZE, GROUP_B)


def stack(lv: LvUuid, *tags: lv_tags.Tag, meta: bool = False,
          **fields: typing.Any) -> state.Stack:
    def volume(name: str) -> lvm.LogicalVolume:
        return lvm.LogicalVolume(name, '/dev/vg/' + name, SIZE, frozenset(),
                                 '253:1', False, True)
    if tags or not fields:
        fields.setdefault('data', volume(names.data_lv(lv)))
    if meta:
        fields['meta'] = volume(names.meta_lv(lv))
        fields['meta_tag'] = lv_tags.MetadataTag(VolumeId('v'), lv, 1,
                                                 FROM_X.iqn)
    return state.Stack(lv, tags=lv_tags.Tags.parse(
        lv_tags.print_tag(tag) for tag in tags), **fields)


def devices(*wanted: names.DeviceName,
            opened: bool = False) -> dict[names.DeviceName, device.Device]:
    return {name: device.Device(
        str(name), '253:9', table.Table(), int(opened), False,
        False) for name in wanted}


def stacked(hydrated: int = 0, mode: status.Mode = status.Mode.RW,
            hydration: bool = True, path: bool = True, queues: bool = True,
            **fields: typing.Any) -> state.Stack:
    """Y while it hydrates."""
    targets_: tuple[table.Target, ...] = (
        table.Clone('253:1', '253:2', '253:3', units.Sectors(8)),
        table.Multipath('8:0', queue=queues))
    there = {
        name: dataclasses.replace(found, table=table.Table.single(
            units.Sectors(8), target)) for target, (name, found) in zip(
                targets_, devices(names.clone(Y), names.source(Y)).items())}
    return stack(
        Y, OWN_Y, FROM_X, meta=True,
        clone=status.CloneStatus(
            mode, hydrated=units.Regions(hydrated), total=units.Regions(8),
            features=frozenset([] if hydration else ['no_hydration'])),
        source=status.MultipathStatus({'8:0': path}),
        disk=sessions.Disk('/dev/sda', '8:0', 'LOGGED_IN'),
        devices=there, **fields)


def lending(found: state.Stack) -> state.Stack:
    """Exported to all that it is lent to."""
    loans = {names.loan(found.lv, tag.lv): tag for tag in found.tags.lent}
    return dataclasses.replace(
        found, devices={**found.devices, **devices(*loans)}, exports={
            name.path: targets.ExportState(
                name.path, name.path, found.lv,
                frozenset([tag.initiator]), True, frozenset())
            for name, tag in loans.items()})


class TestCase(base.TestCase):

    def step(self, node: NodeName, row: rows.Row | None, found: state.Stack,
             **known: typing.Any) -> Step:
        self.decision = decide.decide(
            observed.Facts(node, found, row, **known))
        return self.decision.step


class DecideTest(TestCase):

    def test_every_action_can_be_taken(self) -> None:
        self.assertEqual(set(Action), set(actions._FUNCTIONS))

    # -- the rows of the table ----------------------------------------------

    def test_1_at_rest(self) -> None:
        self.assertIs(Verdict.REST, self.step(A, AT_A, stack(X, OWN_X)))

    def test_2_withdrawn_with_a_copy_left(self) -> None:
        copy = stack(Y, COPY_Y, FROM_X)
        self.assertIs(Question.AGREE, self.step(B, AT_A, copy))
        self.assertEqual((AX,), self.decision.ask)
        self.assertIs(Verdict.WAIT, self.step(B, AT_A, copy,
                                              agreed={A: False}))
        self.assertIs(Action.DISCARD, self.step(B, AT_A, copy,
                                                agreed={A: True}))

    def test_3_withdrawn_with_a_loan_left(self) -> None:
        found = stack(X, OWN_X, LENT_Y)
        self.assertIs(Question.SHOW, self.step(A, AT_A, found))
        for now in (LvState.MISSING, LvState.COPY):
            shown = dataclasses.replace(COMPLETE, state=now)
            self.assertIs(Action.REVOKE,
                          self.step(A, AT_A, found, shown={BY: shown}))
            self.assertEqual((LENT_Y,), self.decision.lent)

    def test_3_loan_that_a_restored_database_forgot(self) -> None:
        """H3: the borrower may have the newest data."""
        found = stack(X, OWN_X, LENT_Y)
        for changed in ({'state': LvState.HYDRATING},
                        {'state': LvState.COMPLETE},
                        {'state': LvState.MISSING, 'group': 'another'}):
            shown = dataclasses.replace(COMPLETE, **changed)
            self.assertIs(Verdict.REPORT,
                          self.step(A, AT_A, found, shown={BY: shown}))

    def test_4_offer_without_a_handler(self) -> None:
        self.assertIs(Action.WITHDRAW, self.step(A, OFFERED, stack(X, OWN_X)))

    def test_5_and_6_offer_that_is_lent(self) -> None:
        self.assertIs(Action.WITHDRAW,
                      self.step(A, OFFERED, stack(X, OWN_X, LENT_Y)))
        self.assertIs(Verdict.WAIT, self.step(B, OFFERED,
                                              stack(Y, COPY_Y, FROM_X)))

    def test_7_committed_and_not_told(self) -> None:
        self.assertIs(Action.ADOPT, self.step(B, HYDRATING,
                                              stack(Y, COPY_Y, FROM_X)))

    def test_7_the_lender_exports(self) -> None:
        self.assertIs(Action.LEND, self.step(A, HYDRATING,
                                             stack(X, OWN_X, LENT_Y)))
        self.assertEqual((LENT_Y,), self.decision.lent)

    def test_8_hydrating(self) -> None:
        self.assertIs(Verdict.WAIT, self.step(B, HYDRATING, stacked(3)))
        self.assertIs(Verdict.WAIT, self.step(A, HYDRATING, lending(
            stack(X, OWN_X, LENT_Y))))

    def test_8_after_a_reboot(self) -> None:
        found = stack(Y, OWN_Y, FROM_X, meta=True)
        self.assertIs(Action.ASSEMBLE, self.step(B, HYDRATING, found))

    def test_8_not_started(self) -> None:
        self.assertIs(Action.HYDRATE, self.step(B, HYDRATING,
                                                stacked(hydration=False)))

    def test_8_path_lost(self) -> None:
        lost = stacked(path=False)
        assert lost.disk
        self.assertIs(Action.RECONNECT, self.step(B, HYDRATING, lost))
        # Its session comes back by itself, or not: nothing is to be done.
        # dm-multipath notices when I/O fails, and not before.
        for path in (False, True):
            away = dataclasses.replace(
                stacked(path=path),
                disk=dataclasses.replace(lost.disk, state='FAILED'))
            self.assertIs(Verdict.WAIT, self.step(B, HYDRATING, away))
            self.assertIn(f'{A} is away', self.decision.hindrance)

    def test_8_path_lost_below_a_joint(self) -> None:
        """While a read waits, nothing it went through can change."""
        joint = devices(names.joint(Y))
        for up, step in ((True, Action.LEAD_OVER), (False, Action.RECONNECT)):
            found = stacked(path=up)
            self.assertIs(step, self.step(B, HYDRATING, dataclasses.replace(
                found, devices={**found.devices, **joint})))

    def test_8_source_that_would_fail(self) -> None:
        """H17: a teardown that did not end leaves a source without queue."""
        self.assertIs(Action.RECONNECT, self.step(B, HYDRATING,
                                                  stacked(queues=False)))

    def test_8_all_regions_are_there(self) -> None:
        for path in (True, False):
            self.assertIs(Action.FINISH, self.step(B, HYDRATING,
                                                   stacked(8, path=path)))

    def test_8_all_regions_are_there_and_the_server_moves_on(self) -> None:
        """A read of it may still wait for the lender."""
        front = names.front('b', Y)
        here, there = (Attachment(
            name, 'attached', 'server', True, name, f'iqn.{name}')
            for name in 'bc')
        row = dataclasses.replace(
            HYDRATING, status='in-use', attachments=(here, there),
            provider_id=f'2;from={AX};offer=c@x/{VOLUME}')
        for path, step in ((True, Verdict.WATCH), (False, Action.RECONNECT)):
            found = stacked(8, path=path)
            found.devices.update(devices(front, opened=True))
            self.assertIs(step, self.step(B, row, found), path)

    def test_9_finish_interrupted(self) -> None:
        for meta in (True, False):
            self.assertIs(Action.COMPLETE, self.step(
                B, HYDRATING, stack(Y, OWN_Y, meta=meta)))

    def test_10_the_copy_is_gone(self) -> None:
        found = state.Stack(Y)
        self.assertIs(Verdict.REPORT, self.step(B, HYDRATING, found))
        self.assertIn(str(AX), self.decision.why)

    def test_10_the_lender_keeps_its_copy(self) -> None:
        """H8: X is the salvage copy when Y is lost."""
        for row in (HYDRATING, AT_B):
            for shown in (None, *(messages.Shown(now, group=GROUP_B)
                                  for now in (LvState.MISSING,
                                              LvState.UNCLEAR))):
                step = self.step(A, row, stack(X, OWN_X, LENT_Y),
                                 shown={BY: shown} if shown else {})
                self.assertNotIn(step, (Action.ERASE, Action.DISCARD))

    def test_12_tag_rolled_back(self) -> None:
        """H11: no front comes up on what the row calls a stale copy."""
        self.assertIs(Action.BAR, self.step(A, HYDRATING, stack(X, OWN_X)))
        self.assertEqual(frozenset(), self.decision.make)

    def test_13_released_on_proof(self) -> None:
        lent = lending(stack(X, OWN_X, LENT_Y))
        self.assertIs(Question.SHOW, self.step(A, AT_B, lent))
        self.assertEqual((BY,), self.decision.ask)
        self.assertIs(Action.ERASE, self.step(A, AT_B, lent,
                                              shown={BY: COMPLETE}))

    def test_14_complete_copy_vanished(self) -> None:
        self.assertIs(Verdict.REPORT, self.step(
            A, AT_B, stack(X, OWN_X, LENT_Y),
            shown={BY: messages.Shown(LvState.MISSING, group=GROUP_B)}))

    def test_15_order_violated(self) -> None:
        """The row says complete, the LV says it is not."""
        self.assertIs(Verdict.REPORT, self.step(B, AT_B, stacked(3)))
        # Nor is anything put together then.
        found = stack(Y, OWN_Y, FROM_X, meta=True)
        self.assertIs(Verdict.REPORT, self.step(B, AT_B, found))

    def test_21_soft_deleted(self) -> None:
        for node, row, found in (
                (A, AT_A, stack(X, OWN_X)), (B, HYDRATING, stacked(3)),
                (B, AT_B, stack(Y, OWN_Y)),
                (B, AT_A, stack(Y, COPY_Y, FROM_X))):
            deleted = dataclasses.replace(row, deleted=True)
            self.assertIs(Action.ERASE, self.step(node, deleted, found))

    def test_21_nothing_is_left_of_a_deleted_volume(self) -> None:
        for node in (A, B):
            self.assertIs(Verdict.REST, self.step(
                node, dataclasses.replace(HYDRATING, deleted=True),
                dataclasses.replace(stack(Y), data=None)))

    def test_22_no_row_not_even_deleted(self) -> None:
        """H3: a wrong or empty database deletes nothing."""
        for found in (stack(X, OWN_X), stack(X, OWN_X, LENT_Y),
                      stack(Y, COPY_Y, FROM_X), stacked(3), stack(X)):
            self.assertIs(Verdict.REPORT, self.step(A, None, found))

    def test_23_database_went_back(self) -> None:
        """H3: an LV that is ahead of the row is kept, without a front."""
        for found in (stack(Y, OWN_Y), stacked(8)):
            self.assertIs(Verdict.REPORT, self.step(B, AT_A, found))
            self.assertIn('back in time', self.decision.why)

    # -- besides the table --------------------------------------------------

    def test_reinstalled_borrower_proves_nothing(self) -> None:
        """H3, H30: another volume group under the borrower's name."""
        other = dataclasses.replace(COMPLETE, group=GroupUuid('another'))
        self.assertIs(Verdict.REPORT, self.step(
            A, AT_B, stack(X, OWN_X, LENT_Y), shown={BY: other}))
        self.assertIn('another volume group', self.decision.why)

    def test_proof_must_be_of_now(self) -> None:
        lent = stack(X, OWN_X, LENT_Y)
        for step, changed in (
                (Verdict.REPORT, {'generation': 1}),
                (Verdict.REPORT, {'size': SIZE - 512}),
                (Verdict.REPORT, {'state': LvState.UNCLEAR}),
                (Action.LEND, {'state': LvState.HYDRATING}),
                (Action.LEND, {'state': LvState.COPY})):
            shown = dataclasses.replace(COMPLETE, **changed)
            self.assertIs(step, self.step(A, AT_B, lent, shown={BY: shown}))

    def test_broken_clone_is_an_alarm(self) -> None:
        for mode in (status.Mode.RO, status.Mode.FAIL):
            self.assertIs(Verdict.REPORT, self.step(B, HYDRATING,
                                                    stacked(8, mode)))

    def test_several_rows_claim_one_lv(self) -> None:
        self.assertIs(Verdict.REPORT, self.step(A, AT_A, stack(X, OWN_X),
                                                rivals=True))

    def test_unreadable_tags(self) -> None:
        found = dataclasses.replace(stack(X, OWN_X), unreadable='nonsense')
        self.assertIs(Verdict.REPORT, self.step(A, AT_A, found))

    def test_a_row_of_a_later_release(self) -> None:
        row = dataclasses.replace(AT_A, provider_id='v2;1')
        self.assertIs(Verdict.REPORT, self.step(A, row, stack(X, OWN_X)))
        self.assertIn('has format 2', self.decision.why)

    def test_nobody_interferes_with_a_deletion(self) -> None:
        row = dataclasses.replace(AT_A, status='deleting')
        self.assertIs(Verdict.WAIT, self.step(A, row, stack(X, OWN_X, LENT_Y)))

    def test_reserved_attachment_keeps_the_front(self) -> None:
        """H22: Cinder writes the connector after the path was returned."""
        front = names.front('a', X)
        found = stack(X, OWN_X, devices=devices(front))
        waiting = Attachment('new', 'reserved', 'server', False, None,
                             None)
        row = dataclasses.replace(AT_A, status='reserved',
                                  attachments=(waiting,))
        self.assertIs(Verdict.WATCH, self.step(A, row, found))
        self.assertIs(Action.CONSUMERS, self.step(A, AT_A, found))
        self.assertEqual({front}, self.decision.drop)

    def test_server_that_moved_to_a_host_without_the_backend_keeps_its_disk(
            self) -> None:
        """Though Nova could not delete its attachment here."""
        here = Attachment('old', 'attached', 'server', True, 'a',
                          'iqn.a', 'local')
        there = Attachment('new', 'attached', 'server', True, 'compute9',
                           'iqn.compute9', 'iscsi')
        row = dataclasses.replace(AT_A, status='in-use',
                                  attachments=(here, there))
        found = stack(X, OWN_X, devices=devices(names.front('a', X)))
        self.assertIs(Action.CONSUMERS, self.step(A, row, found))
        self.assertEqual({names.serve(X)}, self.decision.make)
        self.assertEqual({'iqn.compute9'}, self.decision.initiators)

    def test_a_local_attachment_elsewhere_is_not_exported_to(self) -> None:
        there = Attachment('old', 'attached', 'another', True, 'b',
                           'iqn.b', 'local')
        row = dataclasses.replace(AT_A, status='in-use', attachments=(there,))
        self.assertIs(Verdict.REST, self.step(A, row, stack(X, OWN_X)))

    def test_a_front_that_nobody_uses_goes_when_all_are_elsewhere(
            self) -> None:
        """One of a boot would let those wait who read over iSCSI."""
        there = Attachment('old', 'attached', 'server', True, 'compute9',
                           'iqn.compute9', 'iscsi')
        row = dataclasses.replace(AT_A, status='in-use', attachments=(there,))
        front = names.front('a', X)
        found = stack(X, OWN_X, devices=devices(front))
        self.assertIs(Action.CONSUMERS, self.step(A, row, found))
        self.assertEqual({front}, self.decision.drop)

    def test_open_front_is_never_dropped(self) -> None:
        front = names.front('a', X)
        found = stack(X, OWN_X, devices=devices(front, opened=True))
        self.assertIs(Verdict.WATCH, self.step(A, AT_A, found))

    def test_sealed_copy_gets_no_front(self) -> None:
        """H22: whoever asks, X admits no writer after the commit."""
        there = Attachment('new', 'attached', 'server', True, 'a',
                           'iqn.a')
        row = dataclasses.replace(HYDRATING, attachments=(there,))
        found = stack(X, OWN_X, LENT_Y)
        self.assertIs(Action.LEND, self.step(A, row, found))
        self.assertEqual(frozenset(), self.decision.make)

    def test_writer_on_a_stale_copy(self) -> None:
        front = names.front('a', X)
        found = stack(X, OWN_X, LENT_Y, devices=devices(front))
        self.assertIs(Action.CONSUMERS, self.step(A, HYDRATING, found))
        self.assertEqual({front}, self.decision.drop)
        found = stack(X, OWN_X, LENT_Y, devices=devices(front, opened=True))
        self.assertIs(Action.FENCE, self.step(A, HYDRATING, found))
        self.assertEqual({front}, self.decision.drop)
        fenced = {front: dataclasses.replace(
            found.devices[front], table=table.Table.single(
                units.Sectors(8), table.Error()))}
        found = dataclasses.replace(found, devices=fenced)
        # Only the end has to wait for that server.
        self.assertIs(Action.LEND, self.step(A, HYDRATING, found))
        self.assertIs(Verdict.WAIT, self.step(A, AT_B, found,
                                              shown={BY: COMPLETE}))
        serve = names.serve(X)
        found = stack(X, OWN_X, LENT_Y, devices=devices(serve, opened=True))
        self.assertIs(Verdict.REPORT, self.step(A, HYDRATING, found))

    def test_a_suspended_lv_goes_on_whatever_is_known_of_it(self) -> None:
        """A server waits for it."""
        for row, found in ((AT_A, stack(X, OWN_X)), (None, stack(X, OWN_X)),
                           (HYDRATING, stack(X, OWN_X, LENT_Y)),
                           (AT_A, stack(X, unreadable='a tag'))):
            data = stack(X).data
            assert data
            found = dataclasses.replace(found, data=dataclasses.replace(
                data, suspended=True))
            self.assertIs(Action.ACTIVATE, self.step(A, row, found))
            self.assertTrue(found.in_flight)

    def test_lost_front_comes_back(self) -> None:
        there = Attachment('new', 'attached', 'server', True, 'b',
                           'iqn.b')
        row = dataclasses.replace(HYDRATING, status='in-use',
                                  attachments=(there,))
        self.assertIs(Action.CONSUMERS, self.step(B, row, stacked(3)))
        self.assertEqual({names.front('b', Y)}, self.decision.make)
