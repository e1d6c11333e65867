# SPDX-License-Identifier: Apache-2.0
"""The command finds the backends of a node as cinder-volume does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests.unit import base

CONF = '''
[DEFAULT]
host = node1
state_path = {state}
rpc_response_timeout = 120
enabled_backends = first,foreign,second
[backend_defaults]
volume_driver = cinder_dmclone.driver.DMCloneVolumeDriver
[first]
target_ip_address = 192.0.2.1
volume_group = one
[foreign]
volume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver
[second]
backend_host = other
target_ip_address = 192.0.2.1
volume_group = two
'''

# In a process of its own: the options are global.
PROGRAM = '''
import sys
from cinder_dmclone import cli

def show(world):
    print(world.settings.node, world.group.name, world.settings.budget)
    return 0

cli._status = show
sys.exit(cli.main(sys.argv[1:]))
'''


class CommandLineTest(base.TestCase):

    def run_cli(self, *words: str) -> list[str]:
        with tempfile.TemporaryDirectory() as state:
            path = os.path.join(state, 'cinder.conf')
            with open(path, 'w', encoding='utf-8') as file:
                file.write(CONF.format(state=state))
            return subprocess.run(
                [sys.executable, '-c', PROGRAM, '--config-file', path,
                 *words, 'status'], check=True, text=True,
                stdout=subprocess.PIPE).stdout.splitlines()

    def test_backends_of_this_driver(self) -> None:
        self.assertEqual(['node1@first one 90.0', 'other@second two 90.0'],
                         self.run_cli())

    def test_a_chosen_backend(self) -> None:
        self.assertEqual(['other@second two 90.0'],
                         self.run_cli('--backend', 'second'))
