# SPDX-License-Identifier: Apache-2.0
"""Live migration as Cinder sees it: two attachments of one server.

Whoever has the device open stands for QEMU, which has it open on both nodes
from the beginning of a migration to its end.
"""
from __future__ import annotations

import contextlib
import typing
import uuid
from collections.abc import Iterator

from lab import look
from lab.agent import Command
from lab.attached import AttachedVolume
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = base.GIB // 4096


class MigrationTestCase(base.FunctionalTest):
    """A server, and what Nova does to have it somewhere else."""

    def setUp(self) -> None:
        super().setUp()
        self.server = str(uuid.uuid4())
        # They must end before the checker looks.
        self.open = contextlib.ExitStack()
        self.addCleanup(self.open.close)

    def hold(self, at: AttachedVolume) -> Command:
        """Keep a device open as QEMU does; closing the result closes it."""
        return self.open.enter_context(at.node.hold(at.path))

    def close(self, at: AttachedVolume, server: Command) -> None:
        """End what holds a device open, and wait until it is closed."""
        server.kill()
        name = at.path.rpartition('/')[2]
        self.wait(f'{at.path} to be closed', lambda: (look.device(
            at.node, name, 'info', '-c', '--noheadings', '-o', 'open')
            or '0').strip() == '0')

    def attached(self, node: LabNode) -> tuple[AttachedVolume, base.Image,
                                               Command]:
        """A filled volume that a server on a node has open."""
        volume, image = self.filled(node)
        at = self.attach(volume, node, self.lab.reserve(volume, self.server))
        return at, image, self.hold(at)

    def migrate(self, at: AttachedVolume, node: LabNode,
                complete: bool = True) -> AttachedVolume:
        """What Nova asks Cinder for before a server moves."""
        there = self.lab.attach_at_once(at.volume, node.number, self.server)
        if complete:
            self.lab.complete(there.id)
        return there

    @contextlib.contextmanager
    def waiting_write(self, at: AttachedVolume, image: base.Image,
                      first: int) -> Iterator[Command]:
        """A write and flush of ten blocks that cannot end yet."""
        with at.node.popen(image.write_command(at, first, 10)) as command:
            self.wait('a write to wait', lambda: self.gate(at) == 'F')
            self.assertIsNone(command.poll())
            yield command

    def gate(self, at: AttachedVolume) -> str:
        """State of the path of a gated front's hold: A, F, or no gate."""
        name = f'dmclone-hold-{at.lv}'
        words = (look.device(at.node, name, 'status') or '').split()
        return words[-2] if words else ''

    def has_moved(self, at: AttachedVolume) -> bool:
        """Whether the volume belongs to the attachment's node."""
        return self.row(at.volume).node == at.node.name

    def finish(self, old: AttachedVolume, new: AttachedVolume,
               server: Command) -> None:
        """The end of a migration that succeeded."""
        self.close(old, server)
        self.detach(old)
        self.wait_complete(new.volume)


class MigrationTest(MigrationTestCase):
    """Attach on one node, migrate, and write where the server is."""

    def test_the_first_write_moves_the_volume(self) -> None:
        old, image, server = self.attached(self.node1)
        new = self.migrate(old, self.node2)
        self.hold(new)
        # The server still runs where it was.
        image.write(old, 7, 20, BLOCKS // 21)
        self.assertEqual('', image.blocks_difference(new))
        self.assertFalse(self.has_moved(new))
        found = self.hydrated(new)
        self.assertEqual(0, found and found[0])
        # Now it is here.
        image.write(new, 11, 20, BLOCKS // 22)
        self.assertTrue(self.has_moved(new))
        # Nobody can write there any more, nor read what is old.
        for words in (f'if=/dev/zero of={old.path} oflag=direct conv=notrunc',
                      f'if={old.path} of=/dev/null iflag=direct'):
            self.wait('the old front to be cut off',
                      lambda: 'Input/output error' in old.node.run(
                          f'timeout 5 dd {words} bs=4096 count=1',
                          check=False).stderr)
        self.finish(old, new, server)
        self.assert_holds(image, new)

    def test_a_server_that_never_writes(self) -> None:
        old, image, server = self.attached(self.node1)
        new = self.migrate(old, self.node2)
        self.hold(new)
        self.finish(old, new, server)
        self.assertTrue(self.has_moved(new))
        image.write(new, 5, 10)
        self.assert_holds(image, new)

    def test_a_write_that_cannot_be_the_servers(self) -> None:
        """Before the attachment is complete: an error, not a move."""
        old, image, server = self.attached(self.node1)
        new = self.migrate(old, self.node2, complete=False)
        result = self.node2.run(
            f'dd if=/dev/zero of={new.path} bs=4096 count=1 conv=notrunc '
            'oflag=direct', check=False)
        self.assertIn('Input/output error', result.stderr)
        self.assertFalse(self.has_moved(new))
        image.write(old, 3, 10)
        self.lab.complete(new.id)
        self.hold(new)
        image.write(new, 17, 10)
        self.finish(old, new, server)
        self.assert_holds(image, new)

    @environment.only_long
    def test_the_owner_is_away_at_the_first_write(self) -> None:
        old, image, server = self.attached(self.node1)
        new = self.migrate(old, self.node2)
        self.hold(new)
        self.node1.volume.kill()
        with self.waiting_write(new, image, 19) as write:
            self.assertFalse(self.has_moved(new))
            self.start_services(self.node1)
            self.assertEqual(0, write.wait(600).code)
        self.assertTrue(self.has_moved(new))
        self.finish(old, new, server)
        self.assert_holds(image, new)

    def test_back_while_hydrating(self) -> None:
        """A chain: the lender of the lender is the node it returns to."""
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2,
                                self.lab.reserve(volume, self.server))
        image.write(at, 21, 20, BLOCKS // 23)
        server = self.hold(at)
        self.assert_hydrating(at)
        back = self.migrate(at, self.node1)
        self.hold(back)
        image.write(back, 23, 20, BLOCKS // 24)
        self.assertTrue(self.has_moved(back))
        self.release(at, self.node1)
        self.finish(at, back, server)
        self.assert_holds(image, back)
