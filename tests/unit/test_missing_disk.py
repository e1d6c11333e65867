# SPDX-License-Identifier: Apache-2.0
"""A node that has lost one of the disks of its volume group."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import questions
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports


class MissingDiskTest(base.CloudTestCase):

    def lose_disk(self, node: cloud.Node, lv: LvUuid) -> None:
        node.lose_power()
        node.group.partial = {names.data_lv(lv)}

    def boot(self, node: cloud.Node) -> dict[str, str]:
        node.up = True
        with self.cloud.db.away():
            return activation.activate(type(node.process)(node).world)

    def test_what_is_on_the_others_comes_up(self) -> None:
        other = LvUuid(self.cloud.create(self.a))
        self.lose_disk(self.a, self.lv)
        problems = self.boot(self.a)
        self.assertEqual({self.a.group.name, self.lv}, set(problems))
        self.assertIn(names.data_lv(self.lv), problems[self.a.group.name])
        self.assertIn('missing or not active', problems[self.lv])
        self.assertEqual([str(names.front(self.a.host, other))],
                         list(self.a.mapper.mapped))

    def test_the_service_starts(self) -> None:
        other = self.cloud.create(self.a)
        self.lose_disk(self.a, self.lv)
        self.a.up = True
        activation.activate_volumes(type(self.a.process)(self.a).world.host)
        self.a.start()
        self.cloud.attach(other, self.a)
        with self.assertRaisesRegex(exceptions.CopyUnusable, 'not active'):
            self.cloud.attach(self.volume, self.a)

    def test_a_group_that_is_not_there_at_all(self) -> None:
        self.lose_disk(self.a, self.lv)
        self.a.group.lost = self.a.up = True
        with self.assertRaisesRegex(exceptions.CommandFailed, 'not found'):
            activation.activate_volumes(
                type(self.a.process)(self.a).world.host)


class ProofTest(base.CloudTestCase):
    """The disk of a copy is lost when it has all, before its lender asks."""

    def setUp(self) -> None:
        super().setUp()

        def end(call: ports.Call) -> None:
            if (call.node, call.port, call.method) == (
                    self.b.name, 'rows', 'complete'):
                self.a.kill()

        self.cloud.after = end
        self.relocated()
        self.cloud.settle()
        self.cloud.after = lambda call: None
        self.copy = self.cloud.row(self.volume).lv
        self.assertIs(LvState.COMPLETE, self.shown())

    def shown(self) -> LvState:
        return questions.show(self.b.process.world.host, self.copy).state

    def assert_kept(self) -> None:
        """The lender has the only copy that can be read."""
        self.a.start()
        self.cloud.settle()
        self.assertIn(names.data_lv(self.lv), self.a.group.volumes)
        self.assertIs(LvState.UNCLEAR, self.shown())

    def test_it_is_missing_when_the_node_boots(self) -> None:
        self.b.lose_power()
        self.b.group.partial = {names.data_lv(self.copy)}
        self.b.start()
        self.assert_kept()

    def test_one_of_several_fails_while_the_node_runs(self) -> None:
        """Its beginning and its end are on others."""
        self.b.group.partial = {names.data_lv(self.copy)}
        self.assert_kept()

    def test_it_fails_while_the_node_runs(self) -> None:
        """LVM and the kernel have the LV as before."""
        self.enterContext(mock.patch.object(
            self.b.group, 'read', side_effect=exceptions.CommandFailed(
                command='dd', code=1, stderr='Input/output error')))
        self.assert_kept()
