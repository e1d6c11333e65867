# SPDX-License-Identifier: Apache-2.0
"""How large the regions are in which a volume is copied."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone.host.dm import metadata
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.stack import clones
from cinder_dmclone.units import Bytes
from tests.unit.fake import cloud
from tests.unit.fake import storage
from tests.unit.relocation import test_birth

CHOSEN = int(storage.REGION)


class RegionsTest(test_birth.BirthTestCase):

    def region(self, node: cloud.Node, volume: VolumeId) -> int:
        """Those of the clone that a volume is on a node."""
        clone = names.clone(self.cloud.row(volume).lv)
        status = node.mapper.clone_status(str(clone))
        assert status
        return int(status.region_size.to_bytes())

    def test_they_are_as_large_as_was_chosen(self) -> None:
        self.relocated()
        self.assertEqual(CHOSEN, self.region(self.b, self.volume))

    def test_a_volume_never_has_too_many(self) -> None:
        """A server waits while the kernel looks at each of them."""
        with mock.patch.object(metadata, '_MOST_REGIONS', 4):
            self.relocated()
        self.assertEqual(2 * CHOSEN, self.region(self.b, self.volume))

    def test_they_are_larger_where_nothing_crosses_the_network(self) -> None:
        with mock.patch.object(clones, '_NEAR', Bytes(2 * CHOSEN)):
            here, there = self.clone(self.a), self.clone(self.b)
        self.assertEqual(2 * CHOSEN, self.region(self.a, here))
        self.assertEqual(CHOSEN, self.region(self.b, there))
