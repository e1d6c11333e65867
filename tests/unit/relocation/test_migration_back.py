# SPDX-License-Identifier: Apache-2.0
"""Live migrations of which nothing was heard when the server had moved."""

from __future__ import annotations

import dataclasses
import typing
from unittest import mock

from cinder_dmclone.database import rows
from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.service import connections
from tests.unit import migration


class BackTest(migration.MigrationTestCase):

    def test_back_before_the_first_write(self) -> None:
        """Nova could not delete the old attachment, and goes on."""
        self.migrate()
        self.a.mapper.close(self.old)
        self.cloud.settle()
        with self.assertRaisesRegex(exceptions.CannotServe, self.first):
            self.cloud.migrate(self.volume, self.a)
        # The server on b writes, whoever waits for it elsewhere.
        self.switch()
        connections.disconnect(self.b.service, self.volume, self.a.connector)
        for found in self.cloud.row(self.volume).attachments:
            if found.id != self.second:
                self.cloud.db.drop_attachment(found.id)
        self.assert_migrated()

    def test_the_node_it_moved_to_was_installed_anew(self) -> None:
        """What is on the old one is all that there is."""
        self.migrate()
        self.b.mapper.close(self.new)
        self.b.lose_power()
        self.b.group.volumes.clear()
        self.b.group._durable.clear()
        self.b.group.uuid = GroupUuid('anew')
        self.b.start()
        self.leave()
        self.cloud.settle()
        self.assert_home(self.a)
        self.assertIsNone(self.cloud.row(self.volume).offer)

    def test_a_row_older_than_its_attachments(self) -> None:
        """Read between the commit and the end of what led to it."""
        self.migrate()
        self.held(self.b, self.new)
        find = volumes.RowStore.find

        def read(store: volumes.RowStore,
                 ids: typing.Iterable[VolumeId]) -> list[rows.Row]:
            return [dataclasses.replace(row, attachments=tuple(
                found for found in row.attachments
                if found.id != self.first)) for row in find(store, ids)]
        with mock.patch.object(volumes.RowStore, 'find', read):
            self.event(self.b, self.new)
        self.event(self.b, self.new)
        self.write(self.b, self.new)
        self.leave()
        self.assert_migrated()

    def test_the_old_node_cannot_read_what_it_says_of_itself(self) -> None:
        """A later release may have written it; the copy is there."""
        self.migrate()
        self.a.mapper.close(self.old)
        lv = self.a.group.volumes[names.data_lv(self.lv)]
        lv.tags |= {'dmclone.9.new/1'}
        connections.disconnect(self.a.service, self.volume, self.a.connector)
        self.assert_home(self.b)
