# SPDX-License-Identifier: Apache-2.0
"""What is overwritten before it is deleted is nothing any more."""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import snapshots
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.stack import lv_tags
from tests.unit import test_decide
from tests.unit import test_decide_snapshot_moves as moves

A, B, VOLUME = test_decide.A, test_decide.B, test_decide.VOLUME
AT_A, AT_B = test_decide.AT_A, test_decide.AT_B
AX, BY = test_decide.AX, test_decide.BY
stack = test_decide.stack

ERASED = lv_tags.ErasedTag(VOLUME)
FOUND = stack(test_decide.X, test_decide.OWN_X, ERASED)
# The same, as what it was lent to.
SHOWN = messages.Shown(LvState.ERASED, 2, test_decide.SIZE,
                       test_decide.GROUP_B)


class ErasedTest(test_decide.TestCase):

    def test_it_goes_whatever_becomes_of_the_proof(self) -> None:
        lent = stack(test_decide.X, test_decide.OWN_X, test_decide.LENT_Y,
                     ERASED)
        gone = dataclasses.replace(AT_A, deleted=True)
        for found, row in ((lent, AT_B), (FOUND, gone), (FOUND, None)):
            with self.subTest(row=row):
                self.assertIs(Action.ERASE, self.step(A, row, found))

    def test_a_row_that_names_it_is_of_an_old_database(self) -> None:
        for row in (AT_A, dataclasses.replace(
                AT_B, provider_id=f'2;from={AX}')):
            with self.subTest(row=row):
                self.assertIs(Verdict.REPORT, self.step(A, row, FOUND))
                self.assertIn('overwritten in part', self.decision.why)

    def test_so_is_one_of_a_snapshot(self) -> None:
        found = stack(test_decide.X, test_decide.OWN_X, moves.SNAP, ERASED)
        for snapshot, wanted in (
                (moves.AT_X, Verdict.REPORT), (moves.AT_Y, Action.ERASE),
                (dataclasses.replace(moves.AT_X, deleted=True),
                 Action.ERASE)):
            with self.subTest(snapshot=snapshot):
                self.assertIs(wanted, self.step(
                    A, AT_B, found, snapshots={snapshot.id: snapshot}))

    def test_at_boot_it_gets_no_front(self) -> None:
        self.assertIs(Verdict.WAIT, activation.decide('a', FOUND).step)

    def test_it_is_no_proof_for_its_lender(self) -> None:
        """The database was restored, and what is left is on A alone."""
        lent = stack(test_decide.X, test_decide.OWN_X, test_decide.LENT_Y)
        self.assertIs(Verdict.REPORT, self.step(A, AT_B, lent,
                                                shown={BY: SHOWN}))
        self.assertIs(Verdict.REPORT, self.step(A, AT_A, lent,
                                                shown={BY: SHOWN}))

    def test_its_lender_goes_when_the_volume_does_without(self) -> None:
        lent = stack(test_decide.X, test_decide.OWN_X, test_decide.LENT_Y)
        gone = dataclasses.replace(AT_B, deleted=True)
        self.assertIs(Action.ERASE, self.step(A, gone, lent,
                                              shown={BY: SHOWN}))
        # It has gone on from there, and where it is nobody was asked yet.
        on = dataclasses.replace(AT_B, host='c@x#p', name_id=test_decide.X,
                                 provider_id='3')
        self.assertIs(Question.SHOW, self.step(
            A, on, test_decide.lending(lent), shown={BY: SHOWN}))
        self.assertEqual((on.owner,), self.decision.ask)

    def test_a_moved_snapshot_is_not_there(self) -> None:
        """The row is that of before it moved here."""
        here: snapshots.SnapshotRow = dataclasses.replace(
            moves.AT_Y, provider_id=f'1;at={BY}')
        found = stack(test_decide.X, lv_tags.SnapTag(
            2, here.id, VOLUME, test_decide.SIZE))
        self.assertIs(Verdict.REPORT, self.step(
            A, AT_B, found, snapshots={here.id: here}, shown={
                BY: dataclasses.replace(SHOWN, snapshots=[here.id])}))
