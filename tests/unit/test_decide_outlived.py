# SPDX-License-Identifier: Apache-2.0
"""What an LV is to become that others borrowed, and need no more."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.database import rows
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import adoption
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import test_decide
from tests.unit.test_decide import A
from tests.unit.test_decide import AT_A
from tests.unit.test_decide import AT_B
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
from tests.unit.test_decide import VOLUME
from tests.unit.test_decide import X
from tests.unit.test_decide import Y
from tests.unit.test_decide_loans import CZ
from tests.unit.test_decide_loans import GROUP_C
from tests.unit.test_decide_loans import HYDRATING_Z
from tests.unit.test_decide_loans import LENT_Z
from tests.unit.test_decide_loans import OTHER
from tests.unit.test_decide_loans import Z


class OutlivedTest(test_decide.TestCase):
    """The last loan to another volume has ended.

    That it was lent says nothing of the volume that it was itself.
    """

    shown = {CZ: messages.Shown(LvState.COMPLETE, 6, SIZE, GROUP_C),
             BY: messages.Shown(LvState.MISSING, group=GROUP_B)}
    known = {'shown': shown, 'borrowers': {OTHER: dataclasses.replace(
        HYDRATING_Z, provider_id='6')}}

    def assert_kept(self, node: NodeName, row: rows.Row, *tags: lv_tags.Tag,
                    step: Action = Action.REVOKE, **known: typing.Any
                    ) -> None:
        """It is reported, when what was lent is forgotten."""
        known = known or self.known
        self.assertIs(step, self.step(
            node, row, stack(X, LENT_Z, *tags), **known))
        self.assertIn(LENT_Z, self.decision.lent)
        barred = [lv_tags.PastTag(tag.generation, tag.volume, A, Z)
                  for tag in tags if isinstance(tag, lv_tags.OwnTag)]
        self.assertIs(Verdict.REPORT, self.step(
            node, row, stack(X, *(
                (*(tag for tag in tags if tag not in self.decision.lent),
                 *barred) if step is Action.BAR else tags)), **known))

    def test_the_row_names_another_node(self) -> None:
        """The host was changed in the row, or in cinder.conf."""
        for row in (AT_A, dataclasses.replace(AT_A, deleted=True)):
            self.assert_kept(CZ.node, row, OWN_X)

    def test_the_row_differs_by_the_name_of_the_backend(self) -> None:
        """It is no volume of another one, nor was the offer carried out."""
        row = dataclasses.replace(AT_A, host='a@new#p')
        self.assert_kept(A, row, OWN_X, LENT_Y)
        copy = dataclasses.replace(HYDRATING, host='b@new#p')
        self.assertIs(Verdict.REPORT, self.step(B, copy,
                                                stack(Y, COPY_Y, FROM_X)))
        front = names.front('a', X)
        found = stack(X, OWN_X, LENT_Y, devices=devices(front, opened=True))
        for host in ('a@new#p', 'c@x#p'):
            self.assertNotIn(self.step(A, dataclasses.replace(
                row, host=host), found), (Action.FENCE, Action.CONSUMERS))

    def test_what_was_given_up(self) -> None:
        gone = Location(NodeName('d@x'), X)
        loan = lv_tags.LoanTag(3, VOLUME, gone.node, X, GROUP_C, 'iqn.d', SIZE)
        for record in ('3;lost=2-2', '4;lost=2-2', '5;lost=1-4'):
            row = dataclasses.replace(AT_A, name_id=Z, provider_id=record)
            shown = {**self.shown, row.owner: messages.Shown(
                LvState.COMPLETE, row.generation, SIZE, GROUP_C),
                gone: messages.Shown(LvState.MISSING, group=GROUP_C)}
            known = {**self.known, 'shown': shown}
            self.assert_kept(B, row, test_decide.OWN_Y, loan, step=Action.BAR,
                             **known)
            past = lv_tags.PastTag(4, VOLUME, A, Z)
            self.assertIs(Verdict.REPORT, self.step(B, row, stack(
                X, test_decide.OWN_Y, past), **known))

    def test_its_volume_went_to_a_driver_that_names_it_anew(self) -> None:
        """As its first LV is called here: after the volume's id."""
        volume = VolumeId(X)
        row = rows.Row(volume, 'a@lvm#p', None, 1, 'available', 'success',
                       None, False)
        own = lv_tags.OwnTag(1, volume)
        self.assertIs(Action.ERASE, self.step(A, row, stack(
            X, own, lv_tags.PastTag(2, volume, B, Y), LENT_Z), **self.known))
        # A loan may be an offer that was withdrawn, and the backend renamed.
        self.assertIs(Verdict.REPORT, self.step(A, row, stack(
            X, own, dataclasses.replace(LENT_Y, volume=volume)),
            **self.known))

    def test_it_is_the_volume_again(self) -> None:
        """The database was restored, or it was adopted."""
        past = lv_tags.PastTag(2, VOLUME, A, Z)
        found = stack(Y, test_decide.OWN_Y, past)
        self.assertIs(Action.RENAME, self.step(B, AT_B, found))
        known = observed.Facts(B, found, AT_A)
        self.assertEqual('', adoption.why_not(known))
        later = dataclasses.replace(known, stack=stack(
            Y, test_decide.OWN_Y, dataclasses.replace(past, generation=3)))
        self.assertIn('has gone on', adoption.why_not(later))

    def test_what_bars_its_front_stays(self) -> None:
        """While others need it, and whatever was given up."""
        loan = lv_tags.LoanTag(3, VOLUME, B, Y, GROUP_B, 'iqn.b', SIZE)
        row = dataclasses.replace(AT_A, name_id=X, provider_id='6;lost=2-5')
        hydrating = messages.Shown(LvState.HYDRATING, 6, SIZE, GROUP_C)
        complete = messages.Shown(LvState.COMPLETE, 3, SIZE, GROUP_B)
        self.assertIs(Action.DISCHARGE, self.step(
            A, row, lending(stack(Z, test_decide.OWN_Y, loan, LENT_Z)),
            shown={BY: complete, CZ: hydrating},
            borrowers={OTHER: HYDRATING_Z}))
        self.assertEqual((loan,), self.decision.lent)

    def test_what_was_given_up_had_gone_on_before(self) -> None:
        """What the volume was after that says so, and is given up, too."""
        row = dataclasses.replace(AT_A, name_id=Z, provider_id='4;lost=2-3')
        loan = lv_tags.LoanTag(3, VOLUME, CZ.node, Z, GROUP_C, 'iqn.c', SIZE)
        self.assertIs(Action.ERASE, self.step(
            B, dataclasses.replace(row, name_id=X), stack(
                Y, test_decide.OWN_Y, loan), shown={CZ: messages.Shown(
                    LvState.COMPLETE, 3, SIZE, GROUP_C)}))

    def test_45_who_comes_back(self) -> None:
        row = dataclasses.replace(AT_A, name_id=Y, provider_id='3')
        for found in (row, dataclasses.replace(row, deleted=True)):
            self.assert_kept(B, found, test_decide.OWN_Y, step=Action.BAR)

    def test_45_who_comes_back_and_lent_nothing(self) -> None:
        """A boot without the database must not make it the volume again."""
        row = dataclasses.replace(AT_A, provider_id='3')
        gone = dataclasses.replace(row, deleted=True)
        past = lv_tags.PastTag(2, VOLUME, A, X)
        front = {name: dataclasses.replace(found, table=table.Table.single(
            units.Sectors(8), table.Error())) for name, found in devices(
                names.front('b', Y), opened=True).items()}
        for found, text in ((row, 'claims to be the volume, the row says'),
                            (gone, 'left this LV, which claims to own it')):
            for held in (devices(), front):
                self.assertIs(Action.BAR, self.step(B, found, stack(
                    Y, test_decide.OWN_Y, devices=held)))
                self.assertEqual((), self.decision.lent)
                self.assertIs(Verdict.REPORT, self.step(B, found, stack(
                    Y, test_decide.OWN_Y, past, devices=held)))
                self.assertIn(text, self.decision.why)

    def test_a_row_that_is_not_later_bars_nothing(self) -> None:
        """It may be that of a restored database, or wrong."""
        for row in (dataclasses.replace(AT_A, provider_id='2'),
                    dataclasses.replace(AT_A, host='c@other#p'),
                    dataclasses.replace(AT_A, name_id=Y, provider_id='3')):
            self.assertIs(Verdict.REPORT, self.step(B, row, stack(
                Y, test_decide.OWN_Y)))

    def test_an_offer_was_withdrawn_as_well(self) -> None:
        self.assert_kept(CZ.node, AT_A, OWN_X, LENT_Y)

    def test_12_it_has_lost_its_loan_to_the_volume(self) -> None:
        self.assert_kept(A, HYDRATING, OWN_X, step=Action.BAR)

    def test_it_goes_if_the_volume_has_gone_on(self) -> None:
        past = lv_tags.PastTag(2, VOLUME, B, Y)
        known = {**self.known, 'shown': {**self.shown, BY: COMPLETE}}
        for tag in (LENT_Y, past):
            for row in (AT_B, dataclasses.replace(AT_B, deleted=True),
                        dataclasses.replace(AT_B, host='c@other#p',
                                            provider_id=None)):
                self.assertIs(Action.ERASE, self.step(
                    A, row, stack(X, OWN_X, LENT_Z, tag), **known))
