# SPDX-License-Identifier: Apache-2.0
"""Backends of one node keep off each other's volume groups."""

from __future__ import annotations

from tests.unit import base

CONF = '''
[DEFAULT]
enabled_backends = first,foreign,second,third
[backend_defaults]
volume_driver = cinder_dmclone.driver.DMCloneVolumeDriver
[first]
volume_group = one
[foreign]
volume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver
volume_group = one
[second]
volume_group = two
dmclone_metadata_volume_group = one
[third]
volume_group = three
'''
# As cinder-volume does it.
PROGRAM = '''
import sys
import types
from cinder import objects
objects.register_all()
from cinder.cmd import volume
from cinder.volume import manager
from cinder_dmclone import preflight

volume.CONF(sys.argv[1:3], project='cinder')
backend, group, meta = sys.argv[3:]
for line in preflight._check_neighbours(
        manager.volume_backend_opts, types.SimpleNamespace(
        settings=types.SimpleNamespace(backend=backend),
        groups=[types.SimpleNamespace(name=name)
                for name in (group, meta)])):
    print(line)
'''


class NeighboursTest(base.TestCase):

    def check(self, *words: str) -> str:
        done = self.run_with_config(CONF, PROGRAM, *words)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_the_group_that_another_has_for_metadata(self) -> None:
        self.assertEqual(
            'Volume group one is used by the backend [second] too: each '
            'needs groups of its own.\n', self.check('first', 'one', 'one'))

    def test_both_groups(self) -> None:
        found = self.check('fourth', 'two', 'three')
        self.assertIn('group two is used by the backend [second]', found)
        self.assertIn('group three is used by the backend [third]', found)

    def test_groups_of_its_own(self) -> None:
        self.assertEqual('', self.check('third', 'three', 'three'))
