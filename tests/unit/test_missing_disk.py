# SPDX-License-Identifier: Apache-2.0
"""A node that has lost one of the disks of its volume group."""

from __future__ import annotations

import json
import logging
from unittest import mock

from cinder_dmclone.cli import status
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone import preflight
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import questions
from cinder_dmclone.sysfs import block_device
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit import test_lvm


class ReportTest(base.TestCase):

    def test_lvm_tells_that_one_is_missing(self) -> None:
        found = json.loads(test_lvm.REPORT)
        with mock.patch.object(block_device, 'block_size', return_value=512):
            self.assertFalse(lvm.Report.parse(json.dumps(found)).missing)
            found['report'][0]['pv'].append({'pv_name': '[unknown]'})
            self.assertTrue(lvm.Report.parse(json.dumps(found)).missing)


class KeptTest(test_lvm.VolumeGroupTestCase):
    """How long a report is believed if LVM's description is as before."""

    def setUp(self) -> None:
        super().setUp()
        self.lvm.backup_identity.return_value = ('Z3ohjl', 20)
        self.devnums |= {'/dev/sda': '8:0', '/dev/sdb1': '8:17'}

    def reports(self) -> int:
        """How often LVM was asked, when somebody has wanted one more."""
        self.group.report()
        return self.lvm.report.call_count

    def test_until_a_disk_has_gone(self) -> None:
        self.assertEqual([1, 1], [self.reports(), self.reports()])
        del self.devnums['/dev/sdb1']
        self.assertEqual([2, 2], [self.reports(), self.reports()])

    def test_a_missing_disk_may_be_back_soon(self) -> None:
        found = json.loads(test_lvm.REPORT)
        found['report'][0]['pv'].append({'pv_name': '[unknown]'})
        self.lvm.report.return_value = json.dumps(found)
        self.assertEqual([1, 1], [self.reports(), self.reports()])
        self.now += lvm.KEPT_SECONDS[True]
        self.assertEqual([2, 2], [self.reports(), self.reports()])


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
        """The report is from before, and the kernel has the LV."""
        self.b.group.silent = {names.data_lv(self.copy)}
        self.assert_kept()

    def test_it_is_missing_and_the_lv_cannot_be_read(self) -> None:
        """I/O of one that LVM has left suspended would wait."""
        name = names.data_lv(self.copy)
        self.b.group.volumes[name].suspended = True
        self.b.group.silent = {name}
        self.assertIs(LvState.COMPLETE, self.shown())
        self.b.group.partial = {name}
        self.assertIs(LvState.UNCLEAR, self.shown())


class ToldTest(base.CloudTestCase):
    """Who looks at the node is told which LV it is."""

    def setUp(self) -> None:
        super().setUp()
        self.name = names.data_lv(self.lv)
        self.a.group.partial = {self.name}
        self.said = f'LVM misses a disk of {self.name} (partial)'

    def test_status(self) -> None:
        seen, = status.look(self.a.process.world)
        self.assertEqual(f'ERROR: {self.said}', seen.problem)

    def test_check(self) -> None:
        host = self.a.process.world.host
        found, = preflight.group_problems(host)
        self.assertIn(f'LVM misses a disk of LV {self.name} of volume group '
                      f'{self.a.group.name} (partial): pvs says which', found)

    def test_the_service(self) -> None:
        """Once, and when it is over."""
        look = self.a.process.loop.run_once
        logging.disable(logging.NOTSET)
        with self.assertLogs('cinder_dmclone.reconcile.hindrances') as logs:
            for partial in {self.name}, {self.name}, set[str](), set[str]():
                self.a.group.partial = partial
                look(everything=True)
        begin, end = logs.records
        self.assertEqual(logging.WARNING, begin.levelno)
        self.assertIn(self.said, begin.getMessage())
        self.assertIn('works again', end.getMessage())
