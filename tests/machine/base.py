# SPDX-License-Identifier: Apache-2.0
"""What the tests start from that have a machine and no control plane.

A machine lends to itself; lab.machine.stacks takes the steps.
"""
from __future__ import annotations

import contextlib
import dataclasses
import typing
import uuid
from collections.abc import Iterator

import testtools

from lab import inventory, look
from lab.agent import Command
from lab.attached import clone_status
from lab.machine.alone import Stacks
from lab.node import Node
from lab.processes import wait_for
from tests.functional import base
from tests.machine import environment

MIB = 64
# Each of two writers has a quarter, the rest stays as it was filled.
QUARTER = MIB // 4
FILLED = (MIB // 2) << 20
# A writer that says what it reads is not what it wrote. It pauses, else
# nothing would be copied.
_FIO = '''
exec fio --name=writer --filename="$1" --offset="$2"M --size="$3"M \
    --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=4 \
    --rate_iops=300 --verify=crc32c --verify_backlog=256 --verify_fatal=1 \
    --fsync=32 --time_based --runtime="$4"
'''


@dataclasses.dataclass(frozen=True)
class Front:
    """A device of a server, as base.Image wants it."""

    node: Node
    path: str


class MachineTest(testtools.TestCase):
    """One volume that moves from an LV to another."""

    def setUp(self) -> None:
        super().setUp()
        self.alone = environment.alone()
        self.node = self.alone.node
        self.volume, self.old, self.new = (
            str(uuid.uuid4()) for _ in range(3))
        self.stacks: Stacks | None = None
        self.addCleanup(self.forget)
        self.image = base.Image(self.alone.directory, MIB << 20)
        self.addCleanup(self.finish)

    def finish(self) -> None:
        """Remove the volume; nothing of it may stay."""
        if not self.node.running():
            self.node.start()
            self.node.wait_booted()
        if self.left():
            # One that has failed takes no more steps.
            if self.stacks and self.stacks.ended():
                self.forget()
            self.steps('remove')
            self.assertEqual('', self.left())

    def left(self) -> str:
        """What there is on the machine, if it is anything of ours."""
        found = inventory.take(self.node)
        there = any(getattr(found, kind) for kind in (
            'devices', 'volumes', 'targets', 'backstores', 'sessions',
            'disks', 'records', 'stuck'))
        return found.text if there else ''

    # -- what there is ------------------------------------------------------

    def steps(self, *steps: str) -> None:
        """Take steps of a relocation."""
        if self.stacks is None:
            self.stacks = self.alone.stacks(self.volume, self.old, self.new,
                                            MIB)
        self.stacks(*steps)

    def forget(self) -> None:
        """What took steps ends with its machine."""
        if self.stacks:
            self.stacks.close()
        self.stacks = None

    def front(self, lv: str) -> Front:
        """The server's device on an LV."""
        return Front(self.node, f'/dev/mapper/{look.front("node1", lv)}')

    def assert_holds(self, lv: str) -> None:
        """What was filled and not written to afterwards is as it was."""
        self.assertEqual('', self.image.difference(
            typing.cast(typing.Any, self.front(lv)), size=FILLED))

    def filled(self) -> None:
        """Make the volume."""
        self.steps('create')
        self.image.fill(typing.cast(typing.Any, self.front(self.old)))

    @contextlib.contextmanager
    def writers(self, lv: str, seconds: int) -> Iterator[None]:
        """Two that write meanwhile, and find what they wrote."""
        commands: list[Command] = []
        with contextlib.ExitStack() as stack:
            for number in (2, 3):
                commands.append(stack.enter_context(self.node.popen(
                    ['sh', '-c', _FIO, 'sh', self.front(lv).path,
                     str(number * QUARTER), str(QUARTER), str(seconds)])))
            yield
            for command in commands:
                result = command.wait(seconds + 600)
                self.assertEqual(0, result.code,
                                 result.stdout + result.stderr)

    def hydrated(self) -> bool:
        """Whether all has arrived."""
        line = look.device(self.node, f'dmclone-clone-{self.new}', 'status',
                           '--noflush')
        found = clone_status(line) if line else None
        self.assertIsNotNone(found)
        assert found is not None
        return found.hydrated == found.total

    def wait_hydrated(self) -> None:
        """Wait until all has arrived."""
        wait_for('the hydration', self.hydrated, 900, 1)
