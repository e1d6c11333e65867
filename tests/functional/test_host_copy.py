# SPDX-License-Identifier: Apache-2.0
"""Cinder's own migration: it makes a volume elsewhere and copies by dd.

The rows exchange their ids at the end, so that the volume has an LV of
another name from then on.
"""
from __future__ import annotations

import typing

from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = base.GIB // 4096


# It copies as many MiB as Cinder's size says: a GiB has to be one.
@environment.only_long
class HostCopyTest(base.FunctionalTest):

    def copied(self, volume: str, node: LabNode) -> None:
        """Have Cinder copy a volume to a node, and delete the old one."""
        self.lab.wait_volume(volume, 'available')
        self.lab.cinder('POST', f'/volumes/{volume}/action', {
            'os-migrate_volume': {'host': f'{node.volume.host}#dmclone',
                                  'force_host_copy': True}})

        def ended() -> bool:
            status = self.lab.volume(volume)['os-vol-mig-status-attr:migstat']
            self.assertNotEqual('error', status)
            return bool(status == 'success')
        self.wait(f'the migration of {volume}', ended)
        self.assertEqual(node.volume.host,
                         self.row(volume).host.partition('#')[0])

    def test_it_moves_on_as_any_other(self) -> None:
        volume, image = self.filled(self.node1)
        self.copied(volume, self.node2)
        self.assertNotEqual(volume, self.row(volume).lv)
        at = self.attach(volume, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)

    def test_of_what_hydrates(self) -> None:
        """It is read through the clone, and deleted with what it has."""
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 5, 20, BLOCKS // 23)
        self.assert_hydrating(at)
        self.detach(at)
        self.copied(volume, self.node1)
        self.assert_holds(image, self.attach(volume, self.node1))
