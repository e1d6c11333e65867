# SPDX-License-Identifier: Apache-2.0
"""What a node may do in the database is what is done there."""

from __future__ import annotations

import re
import typing

from cinder import objects
from cinder import quota
from oslo_utils import timeutils

from cinder_dmclone.database import initiators
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models
from tests.unit import base
from tests.unit import migration
from tests.unit import test_packaging

ROLE = (test_packaging.ROOT / 'etc/mariadb/cinder-volume.sql').read_text()
PAGE = (test_packaging.ROOT / 'doc/source/admin/security.rst').read_text()
_GRANT = re.compile(r'(?m)^GRANT (.+) ON `(\w+)` TO cinder_volume;$')
# What is granted of some columns alone.
_COLUMNS = re.compile(r' \([^)]*\)')
# What a statement changes, or reads first, and all that it reads.
_STATEMENT = re.compile(
    r'^(SELECT\b.*?\bFROM|INSERT INTO|UPDATE|DELETE FROM)\s+"?(\w+)"?',
    re.DOTALL)
_READ = re.compile(r'\b(?:FROM|JOIN)\s+"?(\w+)"?')


def granted() -> dict[str, set[str]]:
    """The rights by table."""
    return {table: set(_COLUMNS.sub('', rights).split(', '))
            for rights, table in _GRANT.findall(ROLE)}


def needed(statement: str) -> typing.Iterator[tuple[str, str]]:
    """The rights that a statement needs: table and right."""
    found = _STATEMENT.match(statement)
    assert found, statement
    yield found[2], found[1].split()[0]
    for table in _READ.findall(statement):
        yield table, 'SELECT'


class RoleTest(base.TestCase):

    def test_nothing_else_is_in_the_file(self) -> None:
        lines = [line for line in ROLE.splitlines()
                 if line and not line.startswith('--')]
        self.assertEqual('CREATE ROLE IF NOT EXISTS cinder_volume;', lines[0])
        self.assertEqual(len(lines) - 1, len(granted()))
        for line in lines[1:]:
            self.assertRegex(line, _GRANT)

    def test_tables_are_those_of_cinder(self) -> None:
        known = set(models.BASE.metadata.tables)
        self.assertLessEqual(granted().keys(), known)

    def test_what_it_does_not_have(self) -> None:
        """The page says so."""
        rights = granted()
        known = set(models.BASE.metadata.tables)
        for table in known - rights.keys():
            self.assertIn(f'``{table}``', PAGE)
        for table, has in rights.items():
            self.assertIn('SELECT', has)
            self.assertLessEqual(has, {'SELECT', 'INSERT', 'UPDATE', 'DELETE'})
            if 'DELETE' in has:
                self.assertIn(f'``{table}``', PAGE)
        some, = (found for found, table in _GRANT.findall(ROLE)
                 if table == 'transfers')
        self.assertNotRegex(some, 'salt|crypt_hash|display_name')
        for table in ('quotas', 'volume_types', 'encryption'):
            self.assertEqual({'SELECT'}, rights[table])

    def test_statements_are_understood(self) -> None:
        for statement, found in (
                ('SELECT a.x FROM a LEFT OUTER JOIN b ON 1',
                 {('a', 'SELECT'), ('b', 'SELECT')}),
                ('INSERT INTO a (x) VALUES (?)', {('a', 'INSERT')}),
                ('UPDATE a SET x=? WHERE EXISTS (SELECT 1 FROM b)',
                 {('a', 'UPDATE'), ('b', 'SELECT')}),
                ('DELETE FROM a WHERE 1', {('a', 'DELETE'), (
                    'a', 'SELECT')})):
            self.assertEqual(found, set(needed(statement)))


class UseTest(migration.MigrationTestCase):

    def assert_granted(self) -> None:
        """All that was sent since the statements were cleared."""
        rights = granted()
        statements = {text for text in self.cloud.db.statements
                      if not text.startswith(('PRAGMA', 'BEGIN'))}
        self.assertGreater(len(statements), 10)
        for statement in statements:
            for table, right in needed(statement):
                self.assertIn(right, rights.get(table, ()), statement)

    def test_the_driver(self) -> None:
        """A live migration, a move, and an end; Cinder's part too."""
        self.cloud.db.statements.clear()
        found = initiators.Initiators()
        found.announce('iqn.2026-01.a', self.a.name)
        self.assertEqual([self.a.name], found.nodes('iqn.2026-01.a'))
        self.migrate()
        self.switch()
        self.leave()
        self.cloud.settle()
        other = self.cloud.create(self.a)
        attachment, _ = self.cloud.attach(other, self.b)
        self.cloud.settle()
        self.cloud.detach(other, attachment, self.b)
        self.cloud.delete(other)
        self.cloud.settle()
        self.assert_granted()

    def test_the_manager(self) -> None:
        """What it does beside the driver, by Cinder's own functions."""
        context, volume = self.cloud.db.context, self.volume
        other = self.cloud.create(self.a)
        backup = db_api.backup_create(context, {
            'volume_id': volume, 'user_id': 'u', 'project_id': 'p',
            'status': 'creating'})
        group = db_api.group_create(context, {
            'name': 'g', 'group_type_id': 'type', 'user_id': 'u',
            'project_id': 'p'})
        self.cloud.db.statements.clear()
        # Image to volume, with the cache; a temporary snapshot for a backup.
        db_api.volume_glance_metadata_bulk_create(
            context, volume, {'image_id': 'i'})
        db_api.image_volume_cache_create(
            context, self.a.name, None, 'i', timeutils.utcnow(), volume, 1)
        db_api.image_volume_cache_get_and_update_last_used(
            context, 'i', host=self.a.name)
        db_api.image_volume_cache_delete(context, volume)
        snapshot = self.cloud.db.snapshot(volume)
        db_api.volume_glance_metadata_copy_to_snapshot(
            context, snapshot, volume)
        db_api.volume_glance_metadata_delete_by_snapshot(context, snapshot)
        db_api.snapshot_destroy(context, snapshot)
        db_api.backup_update(context, backup.id, {'temp_snapshot_id': 'x'})
        # Its own work, and what it counts.
        worker = db_api.worker_create(
            context, resource_type='Volume', resource_id=volume,
            status='creating', service_id=None)
        db_api.worker_destroy(context, id=worker.id)
        for end in db_api.reservation_commit, db_api.reservation_rollback:
            end(context, self.reserve(context), project_id='p')
        db_api.volume_admin_metadata_update(
            context, volume, {'attached_mode': 'rw'}, False)
        # A type of another encryption, in another place.
        db_api.volume_type_encryption_get(context, 'type')
        objects.Volume.get_by_id(context, volume).finish_volume_migration(
            objects.Volume.get_by_id(context, other))
        db_api.group_destroy(context, group.id)
        db_api.volume_destroy(context, other)
        self.assert_granted()

    def reserve(self, context: typing.Any) -> list[str]:
        """Room in a quota."""
        found = quota.QUOTAS.reserve(context, project_id='p', volumes=1)
        assert isinstance(found, list)
        return found
