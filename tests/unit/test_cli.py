# SPDX-License-Identifier: Apache-2.0
"""The command finds the backends of a node as cinder-volume does."""

from __future__ import annotations

import subprocess

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

MAIN = '''
import sys
from cinder_dmclone import cli

sys.exit(cli.main(sys.argv[1:]))
'''
PROGRAM = '''
from cinder_dmclone.cli import backends

def show(world):
    settings = world.settings
    print(settings.node, world.host.group.name, settings.budget)
    return 0

backends._status = show
''' + MAIN

# The first backend has lost its volume group; the second takes a lock.
LOST = '''
from cinder_dmclone import exceptions
from cinder_dmclone.reconcile import activation

def activate(world):
    group = world.host.group.name
    if group == 'one':
        raise exceptions.GroupLost(group='one', disk='/dev/sdx')
    with world.locks.volume('volume', 1.0):
        print('activated', group)
    return {}

activation.activate = activate
'''

# The second backend has a volume that is in use.
USED = '''
from cinder_dmclone.reconcile import deactivation

deactivation.in_use = lambda host: (
    ['volume x: in use'] if host.group.name == 'two' else [])
deactivation.deactivate = lambda world: print(world)
'''


class CommandLineTest(base.TestCase):

    def run_cli(self, *words: str) -> list[str]:
        done = self.call(PROGRAM, *words, 'status')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        return done.stdout.splitlines()

    def call(self, program: str,
             *words: str) -> subprocess.CompletedProcess[str]:
        return self.run_with_config(CONF, program, *words)

    def test_backends_of_this_driver(self) -> None:
        self.assertEqual(['node1@first one 90.0', 'other@second two 90.0'],
                         self.run_cli())

    def test_a_chosen_backend(self) -> None:
        self.assertEqual(['other@second two 90.0'],
                         self.run_cli('--backend', 'second'))

    def test_a_backend_that_fails_does_not_keep_others_from_running(
            self) -> None:
        done = self.call(LOST + MAIN, 'activate')
        self.assertEqual((1, 'activated two\n'),
                         (done.returncode, done.stdout))
        self.assertIn('node1@first: Volume group one is not found',
                      done.stderr)
        self.assertIn('after a power cut', done.stderr)
        self.assertNotIn('Traceback', done.stderr)

    def test_what_is_in_use_keeps_all_from_being_deactivated(self) -> None:
        done = self.call(USED + MAIN, 'deactivate')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('cinder-dmclone: other@second: volume x: in use. '
                      'Nothing was changed.', done.stderr)

    def test_locks_that_cannot_be_had(self) -> None:
        """Without them cinder-volume might be changing the same volumes."""
        done = self.run_with_config(
            CONF + '[coordination]\nbackend_url = file:///proc/x\n',
            MAIN, 'activate')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('nothing was activated', done.stderr)
        self.assertNotIn('Traceback', done.stderr)
