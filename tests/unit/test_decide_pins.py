# SPDX-License-Identifier: Apache-2.0
"""What an LV is kept for that is a snapshot, and when that ends."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.database import snapshots
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import decide
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Step
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone import units
from tests.unit import test_decide
from tests.unit.test_decide import A
from tests.unit.test_decide import AT_A
from tests.unit.test_decide import AT_B
from tests.unit.test_decide import AX
from tests.unit.test_decide import B
from tests.unit.test_decide import BY
from tests.unit.test_decide import COMPLETE
from tests.unit.test_decide import devices
from tests.unit.test_decide import HYDRATING
from tests.unit.test_decide import lending
from tests.unit.test_decide import LENT_Y
from tests.unit.test_decide import OWN_X
from tests.unit.test_decide import SIZE
from tests.unit.test_decide import stack
from tests.unit.test_decide import VOLUME
from tests.unit.test_decide import X
from tests.unit.test_decide import Y

SNAP = lv_tags.SnapTag(1, SnapshotId('snapshot'), VOLUME, SIZE)
OTHER = dataclasses.replace(SNAP, snapshot=SnapshotId('other'))
PAST = lv_tags.PastTag(2, VOLUME, B, Y)
ARRIVED = messages.Shown(LvState.COMPLETE, 2, SIZE,
                         snapshots=[SnapshotId('snapshot')])

PINNED = snapshots.SnapshotRow(SnapshotId('snapshot'), VOLUME, 1, 'available',
                               False, f'1;at={AX}')
DELETED = dataclasses.replace(PINNED, status='deleted', deleted=True)
UNKNOWN = dataclasses.replace(PINNED, status='creating', provider_id=None)
RULED_OUT = dataclasses.replace(PINNED, status='error', provider_id='0')
AT_C = Location(NodeName('c@x'), X)
ELSEWHERE = dataclasses.replace(PINNED, provider_id=f'2;at={AT_C}')


class PinsTest(test_decide.TestCase):

    def look(self, row: typing.Any, found: state.Stack,
             *known: snapshots.SnapshotRow, **more: typing.Any) -> Step:
        return self.step(A, row, found, snapshots={
            one.id: one for one in known}, **more)

    def test_24_at_home(self) -> None:
        self.assertIs(Verdict.REST, self.look(
            AT_A, stack(X, OWN_X, SNAP), PINNED))

    def test_25_who_writes_a_snapshot(self) -> None:
        row = dataclasses.replace(AT_A, status='in-use')
        front = names.front('a', X)
        found = stack(X, OWN_X, SNAP, devices=devices(front, opened=True))
        self.assertIs(Verdict.REPORT, self.look(row, found, PINNED))

    def test_29_it_keeps_what_the_volume_has_left(self) -> None:
        for tags in ((SNAP, PAST), (SNAP, OTHER, PAST)):
            self.assertIs(Verdict.REST, self.look(
                AT_B, stack(X, OWN_X, *tags), PINNED,
                dataclasses.replace(PINNED, id=SnapshotId('other'))))
        self.assertIs(Action.DISCHARGE, self.look(
            AT_B, stack(X, OWN_X, SNAP, LENT_Y), PINNED,
            shown={BY: COMPLETE}))

    def test_29_it_is_served_meanwhile(self) -> None:
        self.assertIs(Action.LEND, self.look(
            HYDRATING, stack(X, OWN_X, SNAP, LENT_Y), PINNED))

    def test_29_a_node_looks_until_it_is_deleted(self) -> None:
        going = dataclasses.replace(PINNED, status='deleting')
        for row, tags in ((AT_A, ()), (AT_B, (PAST,))):
            self.assertIs(Verdict.WAIT, self.look(
                row, stack(X, OWN_X, SNAP, *tags), going))

    def test_30_deleted(self) -> None:
        self.assertIs(Action.UNPIN, self.look(
            AT_A, stack(X, OWN_X, SNAP), DELETED))
        self.assertEqual((SNAP,), self.decision.snaps)
        self.assertIs(Action.UNPIN, self.look(
            AT_B, stack(X, OWN_X, SNAP, OTHER, PAST), DELETED,
            dataclasses.replace(PINNED, id=SnapshotId('other'))))
        self.assertEqual((SNAP,), self.decision.snaps)

    def test_30_the_last_tag_goes_with_the_lv(self) -> None:
        """A boot without the database would make it the volume."""
        self.assertIs(Action.ERASE, self.look(
            AT_B, stack(X, OWN_X, SNAP, PAST), DELETED))
        self.assertIs(Verdict.REPORT, self.look(
            AT_B, stack(X, OWN_X, SNAP), DELETED))
        for tags in ((SNAP,), (SNAP, PAST), (PAST,)):
            found = stack(X, OWN_X, *tags)
            self.assertIs(Verdict.REST, activation.decide('a', found).step)

    def test_31_not_known_to_have_been_made(self) -> None:
        """The row first, for the change may be on its way."""
        for row, tags in ((AT_A, ()), (AT_B, (PAST,))):
            found = stack(X, OWN_X, SNAP, *tags)
            for status in ('creating', 'error', 'deleting'):
                self.assertIs(Action.RULE_OUT, self.look(
                    row, found, dataclasses.replace(UNKNOWN, status=status)))
        self.assertIs(Action.UNPIN, self.look(
            AT_A, stack(X, OWN_X, SNAP), RULED_OUT))
        self.assertIs(Verdict.REPORT, self.look(
            AT_A, stack(X, OWN_X, SNAP),
            dataclasses.replace(UNKNOWN, status='available')))

    def test_31_of_a_volume_that_is_being_deleted(self) -> None:
        self.assertIs(Action.RULE_OUT, self.look(
            dataclasses.replace(AT_A, status='deleting'),
            stack(X, OWN_X, SNAP), UNKNOWN))

    def test_32_no_row(self) -> None:
        for row, tags in ((AT_A, ()), (AT_B, (PAST,))):
            self.assertIs(Verdict.REPORT, self.look(
                row, stack(X, OWN_X, SNAP, *tags)))
            self.assertIn('knows nothing of snapshot', self.decision.why)

    def test_33_it_has_moved(self) -> None:
        """The other node says whether it has all of it."""
        for row, tags, step in (
                (AT_A, (), Action.UNPIN), (AT_B, (PAST,), Action.ERASE),
                (AT_B, (PAST, OTHER), Action.UNPIN)):
            others = dataclasses.replace(PINNED, id=OTHER.snapshot)
            found = stack(X, OWN_X, SNAP, *tags)
            known = (ELSEWHERE, *[others] * (OTHER in tags))
            self.assertIs(Question.SHOW, self.look(row, found, *known))
            self.assertEqual((AT_C,), self.decision.ask)
            self.assertIs(step, self.look(row, found, *known,
                                          shown={AT_C: ARRIVED}))
            self.assertIs(Verdict.RETRY, self.look(row, found, *known,
                                                   silent={AT_C: 'off'}))

    def test_33_what_is_doubted_stays(self) -> None:
        doubts: tuple[dict[str, typing.Any], ...] = (
            {'state': LvState.MISSING}, {'state': LvState.UNCLEAR},
            {'snapshots': []}, {'snapshots': ['other']},
            {'size': units.Bytes(SIZE - 1)})
        for row, tags in ((AT_A, ()), (AT_B, (PAST,))):
            found = stack(X, OWN_X, SNAP, *tags)
            for doubt in doubts:
                shown = dataclasses.replace(ARRIVED, **doubt)
                self.assertIs(Verdict.REPORT, self.look(
                    row, found, ELSEWHERE, shown={AT_C: shown}), doubt)
            hydrates = dataclasses.replace(ARRIVED, state=LvState.HYDRATING)
            self.assertIs(Verdict.WAIT, self.look(
                row, found, ELSEWHERE, shown={AT_C: hydrates}))

    def test_33_a_request_does_not_ask_for_it(self) -> None:
        found = stack(X, OWN_X, SNAP)
        facts = observed.Facts(A, found, AT_A, snapshots={
            ELSEWHERE.id: ELSEWHERE})
        self.assertIs(Verdict.REST, decide.for_request(facts).step)

    def test_33_unreadable(self) -> None:
        self.assertIs(Verdict.REPORT, self.look(
            AT_B, stack(X, OWN_X, SNAP, PAST),
            dataclasses.replace(PINNED, provider_id='vol-abc')))

    def test_35_and_43_of_a_deleted_volume(self) -> None:
        row = dataclasses.replace(AT_A, deleted=True)
        found = stack(X, OWN_X, SNAP)
        self.assertIs(Verdict.REST, self.look(row, found, PINNED))
        self.assertIs(Action.ERASE, self.look(row, found, DELETED))
        gone = dataclasses.replace(AT_B, deleted=True)
        self.assertIs(Action.ERASE, self.look(
            gone, stack(X, OWN_X, SNAP, PAST), DELETED))
        self.assertIs(Question.SHOW, self.look(
            row, lending(stack(X, OWN_X, SNAP, LENT_Y)), DELETED))
