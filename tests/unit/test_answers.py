# SPDX-License-Identifier: Apache-2.0
"""What a node says of an LV, and how long that is believed."""

from __future__ import annotations

import dataclasses
import unittest

from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.database import rows
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import questions
from cinder_dmclone.stack import state
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import ports

HERE = NodeName('a@dmclone')
ASKED = Location(NodeName('b@dmclone'), LvUuid('y'))
MISSING = messages.Shown(messages.LvState.MISSING, 0, units.Bytes(0),
                         GroupUuid('g'))
ROW = rows.Row(id=VolumeId('v'), host='a@dmclone#pool', name_id=None, size=1,
               status='available', migration_status=None,
               provider_id='2;offer=b@dmclone/y', deleted=False)


class AnswersTest(unittest.TestCase):

    def setUp(self) -> None:
        self.answers = observed.Answers()
        self.beside(ROW)
        self.answers.shown[ASKED] = MISSING
        self.answers.silent[ASKED] = 'off'

    def beside(self, row: rows.Row) -> observed.Facts:
        return self.answers.beside(observed.Facts(
            HERE, state.Stack(LvUuid('x')), row))

    def test_as_long_as_the_row_says_the_same_of_lvs(self) -> None:
        found = self.beside(dataclasses.replace(ROW, status='in-use'))
        self.assertEqual(MISSING, found.shown[ASKED])

    def test_not_in_a_database_that_was_restored(self) -> None:
        """The LV was missing because it was yet to be made."""
        found = self.beside(dataclasses.replace(ROW, provider_id='2'))
        self.assertEqual({}, found.shown)
        # It would not answer now, either.
        self.assertEqual({ASKED: 'off'}, found.silent)


class ShownTest(base.CloudTestCase):

    def test_what_is_left_of_a_hydration_is_no_proof(self) -> None:
        """What it leads to of a lender on its node could not be removed."""
        self.relocated()
        told = []

        def show(call: ports.Call) -> None:
            if call.node == self.b.name and call.method == 'remove' and (
                    call.port == 'dm'):
                told.append(questions.show(
                    self.b.process.world.host,
                    self.cloud.row(self.volume).lv).state)
        self.cloud.after = show
        self.cloud.settle()
        *before, last = told
        self.assertEqual({messages.LvState.HYDRATING}, set(before))
        self.assertIs(messages.LvState.COMPLETE, last)
