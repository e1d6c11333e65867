# SPDX-License-Identifier: Apache-2.0
"""How the kernel of a node is started, and what its end is called."""
from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

from lab import processes
from lab.errors import LabError
from lab.network import Network
from lab.node import ALARMED, Node
from lab.processes import Group, wait_for

# Stands for the kernel: ends after three alarms that it listened to. One that
# is blocked waits to be listened to, even if it is ignored (sig_ignored,
# kernel/signal.c).
_LISTENS = '''
import signal, sys
begun = signal.getsignal(signal.SIGALRM)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
for _ in range(3):
    signal.sigwait([signal.SIGALRM])
print(*sys.argv[1:], begun.name)
'''


class AlarmedTest(unittest.TestCase):

    def test_alarms_until_the_end(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            log = pathlib.Path(directory, 'log')
            group = Group(pathlib.Path(directory, 'pid'))
            self.addCleanup(group.kill)
            group.start(['sh', '-c', ALARMED, 'sh', sys.executable, '-c',
                         _LISTENS, 'two words', 'one'], log)
            wait_for('the end of all', lambda: not group.members())
            self.assertEqual('two words one SIG_IGN\n', log.read_text())


# As Linux 6.1 says it.
_KILLED = ('Out of memory: Killed process 1048 (cinder-volume) '
           'total-vm:152612kB, anon-rss:141164kB, file-rss:1728kB, '
           'shmem-rss:0kB, UID:0 pgtables:316kB oom_score_adj:0\n')


class CheckTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.node = Node(2, pathlib.Path(folder), Network('none'), [])
        self.say('Starting systemd-udevd\n')

    def say(self, text: str) -> None:
        with self.node.console_log.open('a') as log:
            log.write(text)

    def test_who_waits_is_told_what_the_kernel_killed(self) -> None:
        processes.watch(self.node.check)
        self.addCleanup(processes.unwatch, self.node.check)
        self.node.check()
        self.say(_KILLED)
        for _ in range(2):
            with self.assertRaisesRegex(
                    LabError, 'node2 is out of memory .* Killed process 1048 '
                    r'\(cinder-volume\)'):
                wait_for('something else', lambda: False, 600)
        self.node.forgive()
        self.node.check()

    def test_a_node_that_is_switched_on_again_is_a_new_one(self) -> None:
        self.say(f'{_KILLED}--- switched on\nStarting systemd-udevd\n')
        self.node.check()
        self.say(_KILLED)
        self.assertRaises(LabError, self.node.check)

    def test_a_kernel_that_died_is_told(self) -> None:
        self.node._group.start(['sleep', '60'], self.node.console_log)
        self.addCleanup(self.node._group.kill)
        self.node._on = True
        self.node.check()
        self.say('Kernel panic - not syncing: why\n')
        self.node._group.kill()
        with self.assertRaisesRegex(LabError, 'node2 died.*panic.*why'):
            self.node.check()

    def test_a_kernel_that_was_ended_is_not(self) -> None:
        self.node._group.start(['sleep', '60'], self.node.console_log)
        self.node._on = True
        self.node.power_cut()
        self.node.check()
