# SPDX-License-Identifier: Apache-2.0
"""A volume that two servers have at the same time, on two nodes."""
from __future__ import annotations

import typing
import uuid

from lab import look
from lab.api import connector
from lab.attached import AttachedVolume
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

TYPE = 'multiattach'
BLOCKS = base.GIB // 4096


@environment.only_long
class MultiattachTest(base.FunctionalTest):

    def setUp(self) -> None:
        super().setUp()
        known = self.lab.cinder('GET', '/types')['volume_types']
        if TYPE not in [found['name'] for found in known]:
            self.lab.create_type(TYPE, multiattach='<is> True')

    def multiattach(self, node: LabNode) -> str:
        """A volume that its type lets several servers have; its id."""
        volume = self.lab.create_volume(1, node=node.number, wait=False,
                                        volume_type=TYPE)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        return volume

    def served(self, volume: str, node: LabNode,
               attachment: str) -> tuple[AttachedVolume, dict[str,
                                                              typing.Any]]:
        """Attach where the volume is not; a node logs in once."""
        info = self.lab.connect(attachment, node.number)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.addCleanup(base.logout, node, info)
        path = base.login(node, info)
        self.lab.complete(attachment)
        return AttachedVolume(attachment, volume, node, path), info

    def migrated(self, at: AttachedVolume, node: LabNode, server: str,
                 path: str) -> AttachedVolume:
        """What Nova asks for before a server moves to where one is."""
        answer = self.lab.cinder('POST', '/attachments', {'attachment': {
            'volume_uuid': at.volume, 'instance_uuid': server,
            'connector': connector(node.number)}})['attachment']
        self.assertEqual('iscsi',
                         answer['connection_info']['driver_volume_type'])
        self.lab.complete(answer['id'])
        return AttachedVolume(answer['id'], at.volume, node, path)

    def write_together(self, image: base.Image, *ats: AttachedVolume,
                       first: int) -> None:
        """Each writes every second of the same blocks."""
        commands = [at.node.popen(image.write_command(
            at, first + part, BLOCKS // 256, 128))
            for part, at in enumerate(ats)]
        for command in commands:
            with command:
                self.assertEqual(
                    0, command.wait(base.LONG_SECONDS).code)

    def assert_seen(self, image: base.Image, *ats: AttachedVolume) -> None:
        for at in ats:
            self.assertEqual('', image.blocks_difference(at))

    def test_two_servers_on_two_nodes(self) -> None:
        """One moves live, one leaves; then the volume moves as ever."""
        one, two = str(uuid.uuid4()), str(uuid.uuid4())
        volume = self.multiattach(self.node1)
        first = self.attach(volume, self.node2,
                            self.lab.reserve(volume, one))
        image = self.image()
        image.fill(first)
        self.wait_complete(volume)
        second, info = self.served(volume, self.node1,
                                   self.lab.reserve(volume, two))
        self.write_together(image, first, second, first=3)
        self.assert_seen(image, first, second)
        # A live migration of the one that has it as a local device.
        with first.node.hold(first.path) as server:
            moved = self.migrated(first, self.node1, one, second.path)
            image.write(first, 11, 20, 4096)
            image.write(moved, 12, 20, 4096)
            self.assert_seen(image, first, second)
            server.kill()
        self.wait('the front to be closed', lambda: (look.device(
            self.node2, first.path.rpartition('/')[2], 'info', '-c',
            '--noheadings', '-o', 'open') or '0').strip() == '0')
        self.detach(first)
        self.assertEqual('node2', self.row(volume).node)
        # Both are on one node now. What it may do ends with the last.
        self.write_together(image, moved, second, first=40)
        self.detach(second)
        image.write(moved, 77, 50, 2048)
        self.assert_seen(image, moved)
        base.logout(self.node1, info)
        self.detach(moved)
        self.wait('the end of the export', lambda: not [
            name for name in look.targets(self.node2) if 'dmclone' in name])
        self.assertEqual('node2', self.row(volume).node)
        # Nobody else has it: it moves.
        at = self.attach(volume, self.node1)
        self.assertEqual('node1', self.row(volume).node)
        self.wait_complete(volume)
        self.assert_holds(image, at)
