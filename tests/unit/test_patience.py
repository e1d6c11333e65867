# SPDX-License-Identifier: Apache-2.0
"""Who waits for LVM as long as it takes, and who does not."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone.cli import decisions
from cinder_dmclone.cli import remains
from cinder_dmclone.cli import status
from cinder_dmclone.host import lvm
from cinder_dmclone import preflight
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import deactivation
from tests.unit import base
from tests.unit.fake import storage


class PatienceTest(base.CloudTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.patient: list[bool] = []
        for group in self.a.group, self.b.group:
            self.watch(group)

    def watch(self, group: storage.Group) -> None:
        report = group.report

        def watched(patient: bool = False) -> lvm.Report:
            self.patient.append(patient)
            return report(patient)
        self.enterContext(mock.patch.object(group, 'report', watched))

    def test_commands(self) -> None:
        world = self.a.process.world
        for look in (lambda: status.look(world), lambda: remains.look(world),
                     lambda: decisions.with_lv(self.lv, [world]),
                     lambda: deactivation.in_use(world.host)):
            look()
            self.assertEqual({True}, set(self.patient))
            self.patient.clear()

    def test_a_start_of_the_service(self) -> None:
        """One that has to say why not all LVs are there."""
        host = self.a.process.world.host
        self.a.group.partial = set(self.a.group.volumes)
        activation.activate_volumes(host)
        list(preflight._check_groups(host))
        self.assertEqual({True}, set(self.patient))

    def test_the_reconcilers_look_at_everything(self) -> None:
        self.a.process.loop.run_once(everything=True)
        self.assertEqual([True], self.patient)

    def test_what_a_server_waits_for(self) -> None:
        self.cloud.attach(self.volume, self.b)
        self.assertEqual({False}, set(self.patient))
