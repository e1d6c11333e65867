# SPDX-License-Identifier: Apache-2.0
"""How a clone is kept from copying before a measurement."""
from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest

from lab import measure

# The clone is there when it has been looked for three times.
DMSETUP = '''#!/bin/sh
cd "${0%/*}"
case $1 in
ls) echo x >>looks
    echo "dmclone-front-1 (254:1)"
    [ "$(wc -l <looks)" -lt 3 ] || echo "dmclone-clone-a-1b\t(254:2)";;
status) echo "0 2048 clone 8 1/1024 128 0/16 0 0 4 hydration_threshold 256" \\
    "hydration_batch_size 64 rw";;
message) echo "$*" >>messages;;
esac
'''


class BrakeTest(unittest.TestCase):

    def test_it_brakes_the_first_and_says_what_was(self) -> None:
        folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        command = folder / 'dmsetup'
        command.write_text(DMSETUP)
        command.chmod(0o755)
        done = subprocess.run(
            ['sh', '-c', measure._BRAKE], text=True, capture_output=True,
            timeout=60, env={**os.environ,
                             'PATH': f'{folder}:{os.environ["PATH"]}'})
        self.assertEqual(('256\n', '', 0),
                         (done.stdout, done.stderr, done.returncode))
        self.assertEqual(
            'message dmclone-clone-a-1b 0 hydration_threshold 0\n',
            (folder / 'messages').read_text())
