# SPDX-License-Identifier: Apache-2.0
"""The database of the models is one for all threads, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from cinder_dmclone.releases import models
from tests.unit import base
from tests.unit.fake import database

KILLED = '''
import os, signal
from tests.unit.fake import database

database.Database().volume('a', 'h@b#p')
os.kill(os.getpid(), signal.SIGKILL)
'''


class DatabaseTest(base.TestCase):

    def test_nothing_outlives_a_worker_that_is_killed(self) -> None:
        folder = self.folder()
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', KILLED],
            env={**os.environ, 'TMPDIR': folder}, stderr=subprocess.PIPE)
        self.assertEqual(-signal.SIGKILL, done.returncode, done.stderr)
        self.assertEqual([], os.listdir(folder))

    def test_threads_see_what_others_have_written(self) -> None:
        found = database.Database()
        self.addCleanup(found.close)
        writers = [threading.Thread(target=found.volume,
                                    args=(f'volume {number}', 'h@b#p'))
                   for number in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        self.assertEqual(8, len(found.all(models.Volume)))
