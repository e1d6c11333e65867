# SPDX-License-Identifier: Apache-2.0
"""What an LV is kept for that other volumes borrow, and whose rows decide."""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database.attachment import Attachment
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import decide
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import test_decide
from tests.unit.test_decide import A
from tests.unit.test_decide import AT_A
from tests.unit.test_decide import AT_B
from tests.unit.test_decide import AX
from tests.unit.test_decide import B
from tests.unit.test_decide import BY
from tests.unit.test_decide import COMPLETE
from tests.unit.test_decide import COPY_Y
from tests.unit.test_decide import devices
from tests.unit.test_decide import FROM_X
from tests.unit.test_decide import GROUP_B
from tests.unit.test_decide import HYDRATING
from tests.unit.test_decide import lending
from tests.unit.test_decide import LENT_Y
from tests.unit.test_decide import OWN_X
from tests.unit.test_decide import SIZE
from tests.unit.test_decide import stack
from tests.unit.test_decide import stacked
from tests.unit.test_decide import VOLUME
from tests.unit.test_decide import X
from tests.unit.test_decide import Y
from tests.unit import test_decide_pins as pins

OTHER = VolumeId('00000000-0000-0000-0000-00000000000f')
Z = LvUuid('00000000-0000-0000-0000-000000000003')
CZ = Location(NodeName('c@x'), Z)
GROUP_C = GroupUuid('group of c')
LENT_Z = lv_tags.LoanTag(6, OTHER, CZ.node, Z, GROUP_C, 'iqn.c', SIZE)
HYDRATING_Z = dataclasses.replace(AT_A, id=OTHER, host='c@x#p', name_id=Z,
                                  provider_id=f'6;from={AX}')


class LoansTest(test_decide.TestCase):

    def test_21_soft_deleted_in_the_middle_of_a_chain(self) -> None:
        """It goes on hydrating for whom it is lent to."""
        row = dataclasses.replace(HYDRATING, deleted=True)
        found = stacked(3)
        found = lending(dataclasses.replace(found, tags=dataclasses.replace(
            found.tags, lent=(LENT_Z,))))
        hydrating = messages.Shown(LvState.HYDRATING, 1, SIZE, GROUP_C)
        self.assertIs(Action.PAUSE, self.step(
            B, row, dataclasses.replace(found, source=None),
            shown={CZ: hydrating}))
        self.assertIs(Verdict.WAIT, self.step(B, row, found,
                                              shown={CZ: hydrating}))
        assert found.clone
        found = dataclasses.replace(found, clone=dataclasses.replace(
            found.clone, hydrated=units.Regions(8)))
        self.assertIs(Action.FINISH, self.step(B, row, found,
                                               shown={CZ: hydrating}))

    def test_21_soft_deleted_and_lent(self) -> None:
        """What hydrates from the borrower needs it too: the borrower tells."""
        lent = stack(X, OWN_X, LENT_Y)
        for row in (AT_A, HYDRATING, AT_B):
            row = dataclasses.replace(row, deleted=True)
            self.assertIs(Question.SHOW, self.step(A, row, lending(lent)))
            self.assertIs(Action.LEND, self.step(A, row, lent,
                                                 silent={BY: 'off'}))
            for step, now in ((Action.ERASE, LvState.MISSING),
                              (Action.ERASE, LvState.COMPLETE),
                              (Action.LEND, LvState.COPY),
                              (Action.LEND, LvState.HYDRATING),
                              (Verdict.REPORT, LvState.UNCLEAR)):
                shown = dataclasses.replace(COMPLETE, state=now)
                self.assertIs(step, self.step(A, row, lent,
                                              shown={BY: shown}))

    def test_at_home_it_is_served(self) -> None:
        lent = stack(X, OWN_X, LENT_Z)
        known = {'borrowers': {OTHER: HYDRATING_Z}}
        self.assertIs(Question.SHOW, self.step(A, AT_A, lending(lent),
                                               **known))
        hydrating = messages.Shown(LvState.HYDRATING, 6, SIZE, GROUP_C)
        for answers in ({'shown': {CZ: hydrating}}, {'silent': {CZ: 'off'}}):
            self.assertIs(Action.LEND, self.step(A, AT_A, lent, **answers,
                                                 **known))
            self.assertEqual((LENT_Z,), self.decision.lent)

    def test_where_the_volume_went_stays_known(self) -> None:
        """A database restored to before that must not make it the volume."""
        lent = stack(X, OWN_X, LENT_Y, LENT_Z)
        hydrating = messages.Shown(LvState.HYDRATING, 6, SIZE, GROUP_C)
        self.assertIs(Action.DISCHARGE, self.step(
            A, AT_B, lent, shown={BY: COMPLETE, CZ: hydrating}))
        self.assertEqual((LENT_Y,), self.decision.lent)
        self.assertIs(Action.REVOKE, self.step(
            A, AT_B, lent, shown={
                BY: dataclasses.replace(COMPLETE, state=LvState.HYDRATING),
                CZ: dataclasses.replace(COMPLETE, generation=6,
                                        group=GROUP_C)}))
        self.assertEqual((LENT_Z,), self.decision.lent)
        past = lv_tags.PastTag(2, VOLUME, B, Y)
        for found in (stack(X, OWN_X, past), stack(X, OWN_X, past, LENT_Z)):
            self.assertIs(Verdict.REPORT, self.step(A, AT_A, found))
            self.assertIn('back in time', self.decision.why)
            wanted = activation.decide('a', found)
            self.assertFalse(wanted.make)
        # And it goes when nobody needs it.
        self.assertIs(Action.ERASE, self.step(
            A, AT_B, stack(X, OWN_X, past, LENT_Z), shown={
                CZ: dataclasses.replace(COMPLETE, generation=6,
                                        group=GROUP_C)}))

    def test_at_home_it_ends(self) -> None:
        lent = stack(X, OWN_X, LENT_Z)
        gone = dataclasses.replace(HYDRATING_Z, deleted=True)
        missing = messages.Shown(LvState.MISSING, group=GROUP_C)
        complete = messages.Shown(LvState.COMPLETE, 7, SIZE, GROUP_C)
        never = dataclasses.replace(HYDRATING_Z, host=None, name_id=None,
                                    provider_id='5')
        left = dataclasses.replace(HYDRATING_Z, host='a@other#pool',
                                   provider_id='vol-abc')
        for step, row, shown in ((Action.REVOKE, HYDRATING_Z, complete),
                                 (Action.REVOKE, gone, missing),
                                 (Action.REVOKE, never, missing),
                                 (Action.REVOKE, left, missing),
                                 (Verdict.REPORT, HYDRATING_Z, missing)):
            theirs = observed.Rows([row], A).borrowers(lent)
            self.assertIs(step, self.step(A, AT_A, lent, borrowers=theirs,
                                          shown={CZ: shown}), row)

    def test_a_lost_borrower_whose_volume_hydrates_elsewhere(self) -> None:
        """Whether that had all of it from the one that is lost, it will say.
        """
        row = dataclasses.replace(AT_A, host='c@x#p', name_id=Z,
                                  provider_id=f'3;from={BY}')
        owner = messages.Shown(LvState.HYDRATING, 3, SIZE, GROUP_C)
        missing = messages.Shown(LvState.MISSING, group=GROUP_B)
        for step, state in ((Verdict.WAIT, LvState.HYDRATING),
                            (Verdict.WAIT, LvState.COPY),
                            (Verdict.REPORT, LvState.UNCLEAR),
                            (Action.ERASE, LvState.COMPLETE)):
            shown = {BY: missing, CZ: dataclasses.replace(owner, state=state)}
            self.assertIs(step, self.step(
                A, row, lending(stack(X, OWN_X, LENT_Y)), shown=shown), state)

    def test_a_loan_of_nothing(self) -> None:
        """The volume was reverted: another LV takes the place of this one."""
        row = dataclasses.replace(AT_B, name_id=Z,
                                  provider_id=f'3;from={AX}')
        here = Location(B, Z)
        unread = lv_tags.LoanTag(3, VOLUME, B, Z, GROUP_B, '', units.Bytes(0))
        found, still = (dataclasses.replace(
            one, tags=dataclasses.replace(one.tags, lent=(unread,)))
            for one in (stacked(3), stacked(3, hydration=False)))
        hydrating = {here: messages.Shown(LvState.HYDRATING, 3, SIZE, GROUP_B)}
        complete = {here: messages.Shown(LvState.COMPLETE, 3, SIZE, GROUP_B)}
        self.assertIs(Question.SHOW, self.step(B, row, found))
        for one, step in ((found, Action.PAUSE), (still, Verdict.WAIT)):
            self.assertIs(step, self.step(B, row, one, shown=hydrating))
        self.assertIs(Action.ERASE, self.step(B, row, found,
                                              shown=complete))
        # Nobody needs it put together again, unless somebody reads it.
        rebooted = dataclasses.replace(found, devices={}, clone=None)
        self.assertIs(Verdict.WAIT, self.step(B, row, rebooted,
                                              shown=hydrating))
        rebooted = dataclasses.replace(rebooted, tags=dataclasses.replace(
            found.tags, lent=(unread, LENT_Z)))
        theirs = {CZ: messages.Shown(LvState.HYDRATING, 6, SIZE, GROUP_C)}
        self.assertIs(Action.ASSEMBLE, self.step(
            B, row, rebooted, shown={**hydrating, **theirs}))
        self.assertIs(Action.DISCHARGE, self.step(
            B, row, rebooted, shown={**complete, **theirs}))

    def test_an_offered_copy_that_is_not_there_yet(self) -> None:
        row = dataclasses.replace(HYDRATING_Z, provider_id=f'5;offer={CZ}')
        self.assertIs(Action.LEND, self.step(
            A, AT_A, stack(X, OWN_X, LENT_Z), borrowers={OTHER: row},
            shown={CZ: messages.Shown(LvState.MISSING, group=GROUP_C)}))

    def test_requests_do_not_wait_for_who_borrows(self) -> None:
        known = observed.Facts(A, stack(X, OWN_X, LENT_Z), AT_A,
                               borrowers={OTHER: HYDRATING_Z})
        self.assertIs(Verdict.REST, decide.for_request(known).step)

    def test_its_generation_is_another_volumes(self) -> None:
        """A clone may begin with the generation of any other's row."""
        lent = stack(X, OWN_X, LENT_Z)
        self.assertEqual((1, VOLUME), (lent.tags.generation, lent.volume))
        row, rivals = observed.pick_row(
            lent, A, observed.Rows([HYDRATING_Z, AT_A], A).of(lent))
        self.assertEqual((AT_A, False), (row, rivals))

    def test_who_borrows_from_it_does_not_decide_about_it(self) -> None:
        """Though its row names the LV, as its source."""
        lent, found = stack(X, OWN_X, LENT_Y, LENT_Z), observed.Rows(
            [HYDRATING_Z, AT_B], A)
        self.assertEqual((AT_B, False),
                         observed.pick_row(lent, A, found.of(lent)))
        self.assertFalse(found.named(lent))

    def test_a_borrower_that_never_came_to_be_has_no_node(self) -> None:
        row = dataclasses.replace(HYDRATING_Z, host=None, name_id=None)
        missing = messages.Shown(LvState.MISSING, group=GROUP_C)
        self.assertIs(Action.LEND, self.step(
            A, AT_A, stack(X, OWN_X, LENT_Z), borrowers={OTHER: row},
            shown={CZ: missing}))
        # Nor can it be asked about a copy.
        row = dataclasses.replace(AT_A, host=None)
        self.assertIs(Verdict.WAIT, self.step(B, row,
                                              stack(Y, COPY_Y, FROM_X)))

    def test_a_copy_of_what_another_backend_has(self) -> None:
        row = dataclasses.replace(AT_A, host='a@other#p', provider_id='vol')
        copy = stack(Y, COPY_Y, FROM_X)
        for step, status_ in ((Action.DISCARD, None),
                              (Verdict.WAIT, 'migrating')):
            found = dataclasses.replace(row, migration_status=status_)
            (found,) = observed.Rows([found], B).of(copy)
            self.assertIs(step, self.step(B, found, copy))

    def test_an_offer_on_the_same_node_is_no_live_migration(self) -> None:
        here = Attachment('old', 'attached', 'server', True, 'a',
                          'iqn.a', 'local')
        row = dataclasses.replace(AT_A, provider_id=f'1;offer={A}/{Y}',
                                  status='in-use', attachments=(here,))
        self.assertIsNone(row.migration)
        self.assertIs(Action.WITHDRAW, self.step(A, row, stack(X, OWN_X)))

    def test_a_silent_borrower_keeps_no_other_waiting(self) -> None:
        lent = stack(X, OWN_X, LENT_Y, LENT_Z)
        hydrating = messages.Shown(LvState.HYDRATING, 6, SIZE, GROUP_C)
        self.assertIs(Action.LEND, self.step(
            A, AT_B, lent, silent={BY: 'off'}, shown={CZ: hydrating}))
        self.assertEqual({LENT_Y, LENT_Z}, set(self.decision.lent))
        self.assertIs(Verdict.RETRY, self.step(
            A, AT_B, lending(lent), silent={BY: 'off'}, shown={CZ: hydrating}))

    def test_nobody_waits_for_a_borrower_that_may_not_answer(self) -> None:
        """Nor does one question wait for another."""
        borrowed = {'borrowers': {OTHER: HYDRATING_Z}}
        known = {'snapshots': {pins.ELSEWHERE.id: pins.ELSEWHERE}}
        for row, tags, places in (
                (AT_A, (LENT_Z,), {CZ}),
                (AT_A, (LENT_Z, pins.SNAP), {CZ, pins.AT_C}),
                (AT_A, (LENT_Y, LENT_Z), {BY}),
                (AT_B, (LENT_Y, LENT_Z), {BY, CZ}),
                (AT_B, (LENT_Y, LENT_Z, pins.SNAP), {BY, CZ, pins.AT_C})):
            lent = stack(X, OWN_X, *tags)
            if places != {BY}:
                self.assertIs(Action.LEND, self.step(A, row, lent, **borrowed,
                                                     **known))
                self.assertEqual({LENT_Y, LENT_Z} & {*tags},
                                 set(self.decision.lent))
            self.assertIs(Question.SHOW, self.step(A, row, lending(lent),
                                                   **borrowed, **known))
            self.assertEqual(places, set(self.decision.ask))

    def test_a_volume_that_was_never_made(self) -> None:
        """Cinder has given up what a service that died was making."""
        row = dataclasses.replace(HYDRATING_Z, host='c@x#p', name_id=None,
                                  provider_id=f'0;offer={CZ}')
        tag = dataclasses.replace(LENT_Z, generation=1)
        for status, group, step in (
                ('creating', GROUP_C, Verdict.WAIT),
                ('error', GROUP_C, Action.REVOKE),
                # It may have been made, by disks that are gone.
                ('error', GroupUuid('anew'), Verdict.WAIT)):
            shown = {CZ: messages.Shown(LvState.MISSING, group=group)}
            self.assertIs(step, self.step(
                A, AT_A, lending(stack(X, OWN_X, tag)), shown=shown,
                borrowers={OTHER: dataclasses.replace(row, status=status)}))

    def test_a_volume_that_is_smaller_than_its_lv_was(self) -> None:
        """It is complete, in the LV that its row names."""
        home = Location(CZ.node, Y)
        row = dataclasses.replace(HYDRATING_Z, name_id=Y, provider_id='7')
        shown = {CZ: messages.Shown(LvState.MISSING, group=GROUP_C),
                 home: messages.Shown(LvState.COMPLETE, 7, SIZE - 1, GROUP_C)}
        self.assertIs(Action.REVOKE, self.step(
            A, AT_A, lending(stack(X, OWN_X, LENT_Z)), shown=shown,
            borrowers={OTHER: row}))

    # -- rows ---------------------------------------------------------------

    def test_a_row_of_another_backend_has_no_record(self) -> None:
        """Even if what its driver keeps looks like one."""
        found = stack(X, OWN_X)
        for record in ('12345', 'vol-abc', f'9;from={AX}'):
            row = dataclasses.replace(AT_A, host='a@other#p', name_id=None,
                                      provider_id=record)
            found_row, _ = observed.pick_row(
                found, A, observed.Rows([row], A).of(found))
            assert found_row
            self.assertEqual(0, found_row.generation)
            self.assertIs(Verdict.REPORT, self.step(A, found_row, found))
            self.assertIn('claims to be the volume', self.decision.why)

    def test_who_names_it_decides_before_who_has_its_id(self) -> None:
        """Also if it was deleted: the ids were exchanged."""
        deleted = dataclasses.replace(
            AT_A, id=OTHER, provider_id='3', deleted=True)
        living = dataclasses.replace(AT_B, provider_id='1')
        found = stack(X, dataclasses.replace(OWN_X, generation=3))
        rows_ = observed.Rows([living, deleted], A)
        self.assertEqual((deleted, False), observed.pick_row(
            found, A, rows_.of(found)))


class LostTest(test_decide.TestCase):
    """An operator had a volume taken back from a node that is lost."""

    row = dataclasses.replace(AT_A, provider_id='3')

    def test_44_taken_back(self) -> None:
        found = stack(X, OWN_X, LENT_Y, LENT_Z)
        self.assertIs(Action.TAKE_BACK, self.step(A, self.row, found))
        self.assertEqual((LENT_Y,), self.decision.lent)
        again = stack(X, lv_tags.OwnTag(3, VOLUME))
        self.assertIs(Verdict.REST, self.step(A, self.row, again))

    def test_44_it_had_gone_on_there(self) -> None:
        later = dataclasses.replace(AT_A, provider_id='5')
        self.assertIs(Action.TAKE_BACK,
                      self.step(A, later, stack(X, OWN_X, LENT_Y)))

    def test_44_nothing_else_is_taken_for_it(self) -> None:
        """A loan that only looks old keeps what it keeps."""
        for row, own in ((AT_A, OWN_X), (self.row, test_decide.OWN_Y)):
            self.assertIs(Question.SHOW,
                          self.step(A, row, stack(X, own, LENT_Y)))

    def test_45_who_comes_back(self) -> None:
        front = names.front('b', Y)
        mine = (test_decide.OWN_Y, FROM_X)
        self.assertIs(Action.BAR, self.step(B, self.row, stack(Y, *mine)))
        for opened, step in ((False, Action.CONSUMERS), (True, Action.FENCE)):
            found = stack(Y, *mine, devices=devices(front, opened=opened))
            self.assertIs(step, self.step(B, self.row, found))
            self.assertEqual({front}, self.decision.drop)

    def test_45_who_waits_for_the_lender_of_that(self) -> None:
        """Its device cannot be changed before its reads end."""
        front = devices(names.front('b', Y), opened=True)
        for found, step in ((stacked(path=False), Action.PAUSE),
                            (stacked(path=False, queues=False), Action.FENCE),
                            (stacked(), Action.FENCE)):
            self.assertIs(step, self.step(B, self.row, dataclasses.replace(
                found, devices={**found.devices, **front})))

    def test_45_a_row_that_is_not_newer_cuts_nobody_off(self) -> None:
        """It may be a database that was restored."""
        front = names.front('b', Y)
        for generation in (1, 2):
            row = dataclasses.replace(AT_A, provider_id=str(generation))
            found = stack(Y, test_decide.OWN_Y,
                          devices=devices(front, opened=True))
            self.assertIs(Verdict.REPORT, self.step(B, row, found))
