# SPDX-License-Identifier: Apache-2.0
"""Cinder on a machine: volumes come, go, move, and are there after a boot.

``node2`` is the machine, where systemd runs the service and the unit of the
product; it has two processors, and whoever writes to a volume does so by
three processes.
"""
from __future__ import annotations

import contextlib
import typing
import uuid

from lab import Lab, LabError, ledger, look, power
from lab.lab import LabMachine, LabNode
from lab.machine.volume import ACTIVATION, UNIT
from tests.functional import base
from tests.machine import environment
from tests.machine import neighbours

GIB = environment.GIB
BLOCKS = GIB // 4096
# A block that no writer writes to.
BETWEEN = (ledger.AREA + (1 << 20)) // 4096
# As the installation guide has it, for this machine.
LVM = '/etc/lvm/lvmlocal.conf'
FILTER = 'devices/global_filter=["a|^/dev/vdb$|","r|.*|"]\n'


class CloudTest(neighbours.Neighbours, base.FunctionalTest):
    """Node 1 is as in any lab."""

    volatile = True
    gib = GIB

    @classmethod
    def the_lab(cls) -> Lab:
        return environment.lab()

    def setUp(self) -> None:
        super().setUp()
        self.neighbourly = self.machine = typing.cast(LabMachine, self.node2)
        self.server = str(uuid.uuid4())
        # They must end before the checker looks.
        self.open = contextlib.ExitStack()
        self.addCleanup(self.open.close)

    # -- servers ------------------------------------------------------------

    def writer(self, node: LabNode) -> power.Server:
        """What writes to a volume that it has on a node, filled."""
        server = power.Server(self.lab, self.volume(node), 1, node, GIB)
        self.addCleanup(server.die)
        server.at = self.attach(server.volume, node, self.lab.reserve(
            server.volume, self.server))
        server.fill()
        return server

    def written(self, server: power.Server, flushes: int) -> None:
        """Let it flush so often."""
        until = server.ledger.flushes + flushes

        def enough() -> bool:
            server.listen()
            return server.ledger.flushes >= until
        self.wait(f'{flushes} flushes', enough)

    def assert_right(self, server: power.Server) -> None:
        """It does not write, and all it has flushed is there."""
        self.assertEqual([], server.findings(settled=True)[:20])

    # -- the tests ----------------------------------------------------------

    def test_a_volume_goes_and_comes(self) -> None:
        """It lends, it borrows, and its neighbours see nothing of that."""
        self.assertEqual('Nothing is missing.', [
            line for line in self.machine.volume.cli('check').stdout
            .splitlines() if not line.startswith('note: ')][-1])
        volume, image = self.filled(self.machine)
        at = self.attach(volume, self.machine)
        self.machine.run(['sh', '-c', neighbours.GROUP, 'sh', at.path])
        self.detach(at)
        with self.ignored():
            there = self.attach_slowly(volume, self.machine, self.node1)
            self.everybody_looks()
            self.assert_nobody_knows()
            image.write(there, BLOCKS // 2, 20, 50)
            self.release(there, self.machine)
            self.wait_complete(volume)
            self.detach(there)
            back = self.attach_slowly(volume, self.node1, self.machine)
            self.everybody_looks()
            self.assert_nobody_knows()
            image.write(back, BLOCKS // 2 + 9, 20, 50)
            self.release(back, self.node1)
            self.wait_complete(volume)
            self.assertEqual('', image.difference(back, GIB // 4, GIB // 4))
        self.assertEqual('', image.difference(back, GIB // 2, GIB // 2))
        self.machine.volume.kill()
        self.start_services(self.machine)

    def test_a_server_moves_to_and_fro(self) -> None:
        """Its first write at the one end, while it writes at the other."""
        server = self.writer(self.node1)
        here = server.at
        assert here
        held = self.open.enter_context(self.node1.hold(here.path))
        there = self.lab.attach_at_once(server.volume, 2, self.server)
        self.lab.complete(there.id)
        server.node, server.at = self.machine, there
        server.start()
        self.written(server, 3)
        self.assertEqual('node2', self.row(server.volume).node)
        held.kill()
        self.detach(here)
        # While it is copied and swapped, too.
        self.wait_complete(server.volume)
        self.written(server, 3)
        server.stop()
        self.assert_right(server)
        # Three processes on two processors write while the gate closes, and
        # go on until they are cut off.
        server.start()
        self.written(server, 3)
        back = self.lab.attach_at_once(server.volume, 1, self.server)
        self.lab.complete(back.id)
        self.machine.volume.pause()
        with self.node1.popen(
                ['dd', 'if=/dev/zero', f'of={back.path}', 'bs=4096',
                 'count=1', f'seek={BETWEEN}', 'oflag=direct',
                 'conv=notrunc']) as write:
            hold = f'dmclone-hold-{back.lv}'
            self.wait('a write to wait', lambda: (look.device(
                self.node1, hold, 'status') or '').split()[-2:-1] == ['F'])
            # Nobody has asked it to stop.
            self.written(server, 3)
            self.assertIsNone(write.poll())
            self.machine.volume.resume()
            self.assertEqual(0, write.wait(600).code)
        self.assertEqual('node1', self.row(server.volume).node)
        error = self.assertRaises(LabError, self.written, server, 1 << 30)
        self.assertIn('Input/output error', str(error))
        server.node, server.at = self.node1, back
        self.detach(there)
        self.wait_complete(server.volume)
        self.assert_right(server)

    def test_the_lender_is_away_for_a_while(self) -> None:
        """Writers wait and go on; the copying ends."""
        server = self.moving()
        assert server.at
        self.cut_off(server)
        with self.machine.popen(
                ['dd', f'if={server.at.path}', 'of=/dev/null', 'bs=4096',
                 'count=1', f'skip={BETWEEN}', 'iflag=direct']) as read:
            self.wait('a read to wait', lambda: 'D' in self.machine.run(
                'ps -C dd -o stat=', check=False).stdout)
            self.assertIsNone(read.poll())
            self.node1.heal()
            self.assertEqual(0, read.wait(600).code)
        self.ends(server)

    def cut_off(self, server: power.Server) -> None:
        """Cut the lender off until the path of what is copied has failed."""
        assert server.at
        name = f'dmclone-source-{server.at.lv}'
        self.machine.run('for session in /sys/class/iscsi_session/session*; '
                         'do echo 2 >$session/recovery_tmo; done')
        self.node1.partition()
        self.wait('failure of the path', lambda: 'F' in (look.device(
            self.machine, name, 'status', '--noflush') or '').split())

    def test_a_reboot_while_the_lender_is_away(self) -> None:
        """Nothing waits for it."""
        server = self.moving()
        server.stop()
        self.addCleanup(self.machine.run, f'mv {LVM}.away {LVM}')
        self.machine.run(f'mv {LVM} {LVM}.away')
        self.machine.write(LVM, FILTER)
        # As after a boot.
        self.machine.run(['systemctl', 'start', ACTIVATION], timeout=600)
        self.cut_off(server)
        self.machine.volume.await_start()
        before = len(self.machine.console())
        self.machine.reboot()
        # systemd says for what it waits in the end, the kernel what hangs.
        said = self.machine.console()[before:]
        self.assertNotIn('Waiting for process', said)
        self.assertNotIn('blocked for more than', said)
        self.come_up(server)
        self.node1.heal()
        self.machine.volume.wait_up()
        self.assert_right(server)
        self.ends(server)

    def moving(self) -> power.Server:
        """A volume whose copy is on its way to the machine, written to."""
        server = self.writer(self.node1)
        server.start()
        server.stop()
        assert server.at
        self.detach(server.at)
        server.node = self.machine
        server.at = self.attach_slowly(
            server.volume, self.node1, self.machine,
            self.lab.reserve(server.volume, self.server), crawl=True)
        server.start()
        self.written(server, 3)
        self.assert_hydrating(server.at)
        return server

    def ends(self, server: power.Server) -> None:
        """It goes on writing, all is copied, nothing is lost."""
        assert server.at
        self.release(server.at, self.node1)
        self.wait_complete(server.volume)
        if not server.writes():
            server.start()
        self.written(server, 3)
        server.stop()
        self.assert_right(server)

    def test_a_boot_without_the_control_plane(self) -> None:
        """The unit has brought up what is lent and what is borrowed."""
        server = self.moving()
        lent, image = self.filled(self.machine)
        there = self.attach_slowly(lent, self.machine, self.node1, crawl=True)
        server.stop()
        self.control_plane(False)
        self.machine.volume.await_start()
        self.machine.reboot()
        self.come_up(server)
        self.assert_right(server)
        # Copied from what the machine lends.
        self.assertEqual('', image.difference(there, GIB // 2, 4 << 20))
        self.control_plane(True)
        self.machine.volume.wait_up()
        self.restore()
        self.release(there, self.machine)
        self.wait_complete(lent)
        self.assertEqual('', image.difference(there))
        self.ends(server)

    def control_plane(self, on: bool) -> None:
        """Nobody can ask the database, or send messages, until it is on."""
        for service in self.lab.mariadb, self.lab.rabbitmq:
            if on and not service.running():
                service.start()
            elif not on:
                service.stop()

    def come_up(self, server: power.Server) -> None:
        """The unit has done all there was to do, before the service."""
        def since(unit: str, what: str) -> int:
            return int(self.machine.run(
                ['systemctl', 'show', '--value', '-p', what, unit]).stdout)
        self.wait('the end of the activation', lambda: self.machine.run(
            ['systemctl', 'is-active', ACTIVATION],
            check=False).stdout.strip() in ('active', 'failed'), 900)
        state = self.machine.run(
            ['systemctl', 'status', '--no-pager', '--full', ACTIVATION],
            check=False).stdout
        self.assertIn('(exited)', state)
        assert server.at
        self.assert_hydrating(server.at)
        self.assertLess(
            since(ACTIVATION, 'ActiveEnterTimestampMonotonic'),
            self.wait('the start of the service', lambda: since(
                UNIT, 'ExecMainStartTimestampMonotonic')))

    def test_the_power_fails_while_it_is_written_to(self) -> None:
        """What was in the cache of the disk is lost; nothing else is."""
        server = self.moving()
        self.machine.volume.await_start()
        loss = self.machine.power_cut(self.id())
        print(loss, flush=True)
        server.die()
        self.machine.start()
        self.machine.wait_booted()
        self.come_up(server)
        self.assert_right(server)
        self.machine.volume.wait_up()
        self.ends(server)
