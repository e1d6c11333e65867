# SPDX-License-Identifier: Apache-2.0
"""How the kernel of a node is started."""
from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

from lab.node import ALARMED
from lab.processes import Group, wait_for

# Stands for the kernel: ends after three alarms that it listened to.
_LISTENS = '''
import signal, sys, time
alarms = []
time.sleep(1.5)
signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
while len(alarms) < 3:
    signal.pause()
print(*sys.argv[1:], len(alarms))
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
            self.assertEqual('two words one 3\n', log.read_text())
