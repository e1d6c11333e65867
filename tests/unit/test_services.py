# SPDX-License-Identifier: Apache-2.0
"""The services of other nodes, on Cinder's schema and with real SQL."""

from __future__ import annotations

import time
import typing
from unittest import mock

import sqlalchemy as sa

from cinder_dmclone.database import services
from cinder_dmclone.location import NodeName
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models
from tests.unit import base
from tests.unit.fake import database


class ServicesTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.db = database.Database()
        self.addCleanup(self.db.close)
        for number in range(2 * services.PAGE):
            self.db.service(f'{number}@x')
        self.services = services.Services()

    def get(self, node: str) -> typing.Any:
        return self.services.get(NodeName(node))

    def test_in_every_page(self) -> None:
        for number in (0, services.PAGE - 1, services.PAGE,
                       2 * services.PAGE - 1):
            found = self.get(f'{number}@x')
            self.assertEqual(f'{number}@x', found and found.host)
        self.assertIsNone(self.get('other@x'))

    def test_names_are_as_they_are_written(self) -> None:
        """MySQL compares without regard to case, message queues do not."""
        self.get('1@x')
        self.assertIsNone(self.get('1@X'))

    def test_all_are_read_once(self) -> None:
        self.get('1@x')
        self.db.statements.clear()
        self.get('2@x')
        selects = [text for text in self.db.statements
                   if text.startswith('SELECT')]
        self.assertEqual(1, len(selects), selects)

    def test_as_it_is_now(self) -> None:
        self.assertEqual('zone of 1@x',
                         self.get('1@x').availability_zone)
        self.change(availability_zone='another')
        self.assertEqual('another',
                         self.get('1@x').availability_zone)

    def test_a_new_node(self) -> None:
        self.assertIsNone(self.get('new@x'))
        self.db.service('new@x')
        self.assertEqual('new@x', self.get('new@x').host)

    def test_removed_and_back(self) -> None:
        found = self.get('1@x')
        db_api.service_destroy(self.db.context, found.id)
        self.assertIsNone(self.get('1@x'))
        db_api.service_create(self.db.context, {
            'host': '1@x', 'binary': 'cinder-volume', 'uuid': 'new'})
        self.assertEqual('new', self.get('1@x').uuid)

    def test_services_of_other_kinds(self) -> None:
        self.change(binary='cinder-backup')
        self.assertIsNone(self.get('1@x'))

    def test_all_names_are_read_once_a_minute(self) -> None:
        self.assertEqual(2 * services.PAGE, len(self.services.nodes()))
        self.db.service('new@x')
        self.db.statements.clear()
        self.services.nodes()
        self.assertEqual([], self.db.statements)
        with mock.patch.object(
                time, 'monotonic', return_value=time.monotonic()
                + services.NAMES_SECONDS):
            self.assertIn('new@x', self.services.nodes())

    def change(self, **values: str) -> None:
        with database.engine().begin() as connection:
            connection.execute(sa.update(models.Service).where(
                models.Service.host == '1@x').values(**values))
