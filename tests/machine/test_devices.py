# SPDX-License-Identifier: Apache-2.0
"""The driver's devices on two processors, and through a boot."""
from __future__ import annotations

from lab import look
from lab.machine.volume import ACTIVATION
from lab.processes import wait_for
from tests.machine import base


class DevicesTest(base.MachineTest):
    """A volume moves from one LV to another while somebody writes."""

    def test_a_move_under_two_writers(self) -> None:
        self.filled()
        with self.writers(self.old, 60):
            self.steps('lend', 'borrow')
            self.assert_holds(self.new)
        # The server is on the other side now; its first write has to wait.
        with self.node.popen(
                ['dd', 'if=/dev/zero', f'of={self.front(self.new).path}',
                 'bs=4096', 'count=1', f'seek={base.FILLED // 4096}',
                 'oflag=direct', 'conv=notrunc']) as write:
            wait_for('a write to wait', lambda: (look.device(
                self.node, f'dmclone-hold-{self.new}', 'status') or ''
                ).split()[-2:-1] == ['F'])
            self.assertIsNone(write.poll())
            self.steps('seal', 'adopt', 'fence')
            self.assertEqual(0, write.wait(120).code)
        with self.writers(self.new, 90):
            self.steps('hydrate')
            self.wait_hydrated()
            self.steps('complete', 'swap')
        self.assert_holds(self.new)
        self.steps('release')
        self.assertEqual(
            {look.front('node1', self.new)},
            {name for name in look.devices(self.node)
             if name.startswith('dmclone-')})

    def half_moved(self) -> None:
        """A volume that is here, whose data is not."""
        self.filled()
        self.steps('lend', 'borrow', 'seal', 'adopt', 'fence')
        with self.writers(self.new, 5):
            pass
        self.assertFalse(self.hydrated())

    def come_up(self) -> None:
        """The unit has brought up all there was, alone."""
        state = wait_for('the end of the activation', lambda: self.node.run(
            ['systemctl', 'show', '--value', '-p', 'ActiveState', ACTIVATION]
            ).stdout.strip() in ('active', 'failed') and self.node.run(
                ['systemctl', 'status', '--no-pager', '--full', ACTIVATION],
                check=False).stdout, 900, 1)
        self.assertIn('(exited)', str(state))
        self.assert_holds(self.new)
        self.assertFalse(self.hydrated())
        with self.writers(self.new, 30):
            self.steps('hydrate')
            self.wait_hydrated()
        self.steps('complete', 'swap')
        self.assert_holds(self.new)

    def test_a_reboot_while_it_hydrates(self) -> None:
        self.half_moved()
        self.forget()
        self.node.reboot()
        self.come_up()

    def test_a_power_cut_while_it_hydrates(self) -> None:
        self.half_moved()
        self.forget()
        self.node.power_cut()
        self.node.start()
        self.node.wait_booted()
        self.come_up()
