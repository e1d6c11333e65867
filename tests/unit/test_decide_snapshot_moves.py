# SPDX-License-Identifier: Apache-2.0
"""What a snapshot that moves from A to B means for its LV on either node."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.database import snapshots
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Step
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from tests.unit import test_decide
from tests.unit.test_decide import A
from tests.unit.test_decide import AT_A
from tests.unit.test_decide import AT_B
from tests.unit.test_decide import AX
from tests.unit.test_decide import B
from tests.unit.test_decide import BY
from tests.unit.test_decide import FROM_X
from tests.unit.test_decide import GROUP_B
from tests.unit.test_decide import lending
from tests.unit.test_decide import OWN_X
from tests.unit.test_decide import SIZE
from tests.unit.test_decide import stack
from tests.unit.test_decide import VOLUME
from tests.unit.test_decide import X
from tests.unit.test_decide import Y

ID = SnapshotId('snapshot')
SNAP = lv_tags.SnapTag(1, ID, VOLUME, SIZE)
MOVED = dataclasses.replace(SNAP, generation=2)
PAST = lv_tags.PastTag(2, VOLUME, B, Y)
LENT = lv_tags.LoanTag(2, VolumeId(ID), B, Y, GROUP_B, 'iqn.b', SIZE)
CLONE_LENT = dataclasses.replace(LENT, volume=VolumeId('clone'))

AT_X = snapshots.SnapshotRow(ID, VOLUME, 1, 'available', False, f'1;at={AX}')
MOVES = dataclasses.replace(AT_X, provider_id=f'1;at={AX};offer={BY}')
AT_Y = dataclasses.replace(AT_X, provider_id=f'2;at={BY}')
DELETED = dataclasses.replace(MOVES, deleted=True)

COPIES = messages.Shown(LvState.HYDRATING, 2, SIZE, GROUP_B, AX, [ID])
HAS_IT = messages.Shown(LvState.COMPLETE, 2, SIZE, GROUP_B, None, [ID])
HAS_NOT = messages.Shown(LvState.MISSING, group=GROUP_B)
AT_A_STILL = messages.Shown(LvState.COMPLETE, 1, SIZE, None, None, [ID])


class MovesTestCase(test_decide.TestCase):

    def on_a(self, row: typing.Any, *tags: lv_tags.Tag,
             snapshot: snapshots.SnapshotRow = MOVES, lends: bool = False,
             **more: typing.Any) -> Step:
        found = stack(X, OWN_X, *tags)
        return self.step(A, row, lending(found) if lends else found,
                         snapshots={ID: snapshot}, **more)

    def on_b(self, found: state.Stack,
             snapshot: snapshots.SnapshotRow = MOVES,
             **more: typing.Any) -> Step:
        return self.step(B, AT_A, found, snapshots={ID: snapshot}, **more)


class LeavesTest(MovesTestCase):
    """On A, be it the volume's home or not."""

    def test_it_is_lent_until_the_copy_has_it(self) -> None:
        for row, tags in ((AT_A, (SNAP, LENT)), (AT_B, (SNAP, PAST, LENT))):
            for known in {}, {'shown': {BY: COPIES}}, {'silent': {BY: 'off'}}:
                self.assertIs(Action.LEND, self.on_a(row, *tags, **known))
            self.assertIs(Question.SHOW, self.on_a(row, *tags, lends=True))
            self.assertEqual((BY,), self.decision.ask)

    def test_a_copy_that_nobody_makes(self) -> None:
        """The request died: the row first, the loan then."""
        for row, tags in ((AT_A, (SNAP, LENT)), (AT_B, (SNAP, PAST, LENT)),
                          (AT_A, (SNAP,))):
            self.assertIs(Action.STAY, self.on_a(
                row, *tags, shown={BY: HAS_NOT}))
            self.assertEqual((SNAP,), self.decision.snaps)
        for row, tags in ((AT_A, (SNAP, LENT)), (AT_B, (SNAP, PAST, LENT))):
            self.assertIs(Action.REVOKE, self.on_a(
                row, *tags, snapshot=AT_X, shown={BY: HAS_NOT}))

    def test_what_the_copy_has_is_not_the_snapshot_yet(self) -> None:
        for row, tags in ((AT_A, (SNAP,)), (AT_B, (SNAP, PAST))):
            self.assertIs(Verdict.WAIT, self.on_a(
                row, *tags, shown={BY: HAS_IT}))

    def test_it_has_moved(self) -> None:
        self.assertIs(Action.UNPIN, self.on_a(
            AT_A, SNAP, LENT, snapshot=AT_Y, shown={BY: HAS_IT}))
        self.assertIs(Action.ERASE, self.on_a(
            AT_B, SNAP, PAST, LENT, snapshot=AT_Y, shown={BY: HAS_IT}))

    def test_the_copy_is_lost_with_its_node(self) -> None:
        """It is the snapshot: what is left stays."""
        for row, tags in ((AT_A, (SNAP, LENT)), (AT_B, (SNAP, PAST, LENT))):
            self.assertIs(Verdict.REPORT, self.on_a(
                row, *tags, snapshot=AT_Y, shown={BY: HAS_NOT}))

    def test_it_is_deleted_meanwhile(self) -> None:
        self.assertIs(Action.UNPIN, self.on_a(
            AT_A, SNAP, LENT, snapshot=DELETED))
        tags = (SNAP, PAST, LENT)
        self.assertIs(Question.SHOW, self.on_a(
            AT_B, *tags, snapshot=DELETED, lends=True))
        self.assertIs(Action.UNPIN, self.on_a(
            AT_B, *tags, snapshot=DELETED, shown={BY: COPIES}))
        self.assertIs(Action.LEND, self.on_a(
            AT_B, PAST, LENT, snapshot=DELETED, shown={BY: COPIES}))
        self.assertIs(Action.ERASE, self.on_a(
            AT_B, *tags, snapshot=DELETED, shown={BY: HAS_NOT}))

    def test_it_is_being_deleted(self) -> None:
        going = dataclasses.replace(MOVES, status='deleting')
        self.assertIs(Verdict.WAIT, self.on_a(AT_A, SNAP, snapshot=going))


class ArrivesTest(MovesTestCase):
    """On B, which has never had the volume."""

    def copying(self, hydrated: int = 0,
                **fields: typing.Any) -> state.Stack:
        return dataclasses.replace(
            test_decide.stacked(hydrated, **fields),
            tags=lv_tags.Tags(source=FROM_X, snaps=(MOVED,)))

    def test_it_hydrates(self) -> None:
        found = stack(Y, MOVED, FROM_X, meta=True)
        self.assertIs(Action.ASSEMBLE, self.on_b(found))
        self.assertIs(Action.HYDRATE,
                      self.on_b(self.copying(hydration=False)))
        self.assertIs(Verdict.WAIT, self.on_b(self.copying(7)))
        for hydration, queues in ((True, True), (True, False), (False, True)):
            self.assertIs(Action.PAUSE, self.on_b(self.copying(
                7, path=False, hydration=hydration, queues=queues)))
        self.assertIs(Action.RECONNECT, self.on_b(self.copying(
            7, path=False, hydration=False, queues=False)))
        self.assertIs(Action.FINISH, self.on_b(self.copying(8)))

    def test_a_copy_that_was_not_finished(self) -> None:
        """Nobody knows what its metadata says: the row first."""
        raw = lv_tags.MetadataTag(VOLUME, Y, 0, FROM_X.iqn)
        found = stack(Y, MOVED, FROM_X, meta=True)
        for half in (stack(Y, MOVED, FROM_X),
                     dataclasses.replace(found, meta_tag=raw)):
            self.assertIs(Action.STAY, self.on_b(half))
            self.assertIs(Question.SHOW, self.on_b(half, AT_X))
            self.assertEqual((AX,), self.decision.ask)
            self.assertIs(Action.ERASE, self.on_b(
                half, AT_X, shown={AX: AT_A_STILL}))

    def test_what_is_left_of_the_copying_goes_first(self) -> None:
        self.assertIs(Action.COMPLETE, self.on_b(stack(Y, MOVED, meta=True)))

    def test_all_of_it_is_here(self) -> None:
        self.assertIs(Action.ARRIVE, self.on_b(stack(Y, MOVED)))
        self.assertEqual((MOVED,), self.decision.snaps)
        self.assertIs(Verdict.REST, self.on_b(stack(Y, MOVED), AT_Y))

    def test_it_arrives_though_its_deletion_has_failed(self) -> None:
        """Who deletes it again may take long: nobody looks until then."""
        for row, step in (MOVES, Action.ARRIVE), (AT_Y, Verdict.REST):
            self.assertIs(step, self.on_b(
                stack(Y, MOVED),
                dataclasses.replace(row, status='error_deleting')))

    def test_not_while_something_is_done_with_it(self) -> None:
        for busy in ('backing-up', 'restoring', 'deleting'):
            self.assertIs(Verdict.WAIT, self.on_b(
                stack(Y, MOVED), dataclasses.replace(MOVES, status=busy)))

    def test_it_was_taken_back(self) -> None:
        """Whole or not, it goes when the other node shows what it has."""
        for found in (stack(Y, MOVED), self.copying()):
            self.assertIs(Question.SHOW, self.on_b(found, AT_X))
            self.assertIs(Action.ERASE, self.on_b(
                found, AT_X, shown={AX: AT_A_STILL}))

    def test_a_database_that_went_back(self) -> None:
        """A has deleted what it had, or the volume has written it."""
        for shown in (messages.Shown(LvState.MISSING),
                      dataclasses.replace(AT_A_STILL, snapshots=[])):
            self.assertIs(Verdict.REPORT, self.on_b(
                stack(Y, MOVED), AT_X, shown={AX: shown}))

    def test_it_is_deleted(self) -> None:
        for found in (stack(Y, MOVED), self.copying()):
            self.assertIs(Action.ERASE, self.on_b(found, DELETED))

    def test_deleted_while_others_hydrate_from_it(self) -> None:
        """Nothing else says whose it is: the tag goes with the LV."""
        found = stack(Y, MOVED, CLONE_LENT)
        self.assertIs(Question.SHOW, self.on_b(lending(found), DELETED))
        self.assertIs(Action.LEND, self.on_b(
            found, DELETED, shown={CLONE_LENT.borrower: COPIES}))
        self.assertIs(Action.ERASE, self.on_b(
            found, DELETED, shown={CLONE_LENT.borrower: HAS_IT}))

    def test_a_boot_without_the_database(self) -> None:
        """What is whole is lent, and nothing gets a front."""
        self.assertIs(Verdict.REST,
                      activation.decide('b', stack(Y, MOVED)).step)
        self.assertIs(Action.LEND, activation.decide(
            'b', stack(Y, MOVED, CLONE_LENT)).step)
        self.assertIs(Verdict.WAIT, activation.decide(
            'b', stack(Y, MOVED, FROM_X, meta=True)).step)
