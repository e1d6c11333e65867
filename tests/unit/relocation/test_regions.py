# SPDX-License-Identifier: Apache-2.0
"""How large the regions are in which a volume is copied."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone.host.dm import metadata
from cinder_dmclone import names
from tests.unit import base
from tests.unit.fake import storage


class RegionsTest(base.CloudTestCase):

    def region(self) -> int:
        """The regions of the volume's clone once it is attached on b."""
        self.relocated()
        clone = names.clone(self.cloud.row(self.volume).lv)
        status = self.b.mapper.clone_status(str(clone))
        assert status
        return int(status.region_size.to_bytes())

    def test_they_are_as_large_as_was_chosen(self) -> None:
        self.assertEqual(int(storage.REGION), self.region())

    def test_a_volume_never_has_too_many(self) -> None:
        """A server waits while the kernel looks at each of them."""
        with mock.patch.object(metadata, '_MOST_REGIONS', 4):
            self.assertEqual(2 * int(storage.REGION), self.region())
