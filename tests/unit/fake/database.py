# SPDX-License-Identifier: Apache-2.0
"""Cinder's own schema on a throw-away sqlite database."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import typing
from unittest import mock

from cinder import objects

# Importing any object registers command line options, which is refused once
# a configuration was parsed.
objects.register_all()

from cinder import context  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_db import exception as db_exc  # noqa: E402
import oslo_messaging as messaging  # noqa: E402
import sqlalchemy as sa  # noqa: E402
from sqlalchemy import exc as sa_exc  # noqa: E402

from cinder_dmclone.location import SnapshotId  # noqa: E402
from cinder_dmclone.releases import db_api  # noqa: E402
from cinder_dmclone.releases import models  # noqa: E402

CONF = cfg.CONF

TABLES = (models.VolumeAttachment, models.Snapshot, models.Message,
          models.Volume, models.Service, models.VolumeType,
          models.DriverInitiatorData)

# In the memory of this process, and with it gone, however that ends. Unlike
# ":memory:" all connections have the same one, and they lock it like a file
# (memdb.c of SQLite 3.36).
_FILE = 'file:/dmclone?vfs=memdb'

_engine: sa.Engine | None = None
# It is gone when nobody has it open.
_open: sqlite3.Connection | None = None


def engine() -> sa.Engine:
    """The database of this process, made on first use."""
    global _engine, _open
    if _engine is None:
        _open = sqlite3.connect(_FILE, uri=True, check_same_thread=False)
        with mock.patch.object(sa.pool, 'NullPool', sa.pool.QueuePool):
            _engine = connect(f'sqlite:///{_FILE}&uri=true')
        models.BASE.metadata.create_all(_engine)
        _one_for_each_thread(_engine)
    return _engine


def _one_for_each_thread(found: sa.Engine) -> None:
    """Refuse a thread that needs a second connection while it has one.

    So many threads wait for each other for ever where the pool is as large
    (``max_pool_size`` and ``max_overflow`` in ``[database]``).
    """
    holders: dict[typing.Any, int] = {}

    def checkout(connection: typing.Any, record: typing.Any,
                 proxy: typing.Any) -> None:
        thread = threading.get_ident()
        if thread in holders.values():
            raise AssertionError('a thread needs two connections at once')
        holders[record] = thread

    def checkin(connection: typing.Any, record: typing.Any) -> None:
        holders.pop(record, None)

    sa.event.listen(found, 'checkout', checkout)
    sa.event.listen(found, 'checkin', checkin)


def connect(url: str, **options: typing.Any) -> sa.Engine:
    """Make this process use a database."""
    CONF([], project='cinder', default_config_files=[])
    # What costs most with the defaults: a connection for every session,
    # and a turn for other threads after it.
    db_api.main_context_manager.configure(
        connection=url, thread_checkin=False, max_retries=0, **options)
    # Registers rpc_response_timeout.
    messaging.get_rpc_client(messaging.get_rpc_transport(CONF, 'fake:/'),
                             messaging.Target())
    return db_api.get_engine()


class Database:
    """The rows of one test."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.context = context.get_admin_context()
        self.clear()
        sa.event.listen(engine(), 'before_cursor_execute', self._before)
        self._away = False
        self._deadlocks = False

    def clear(self) -> None:
        """Forget what tests before have left."""
        with engine().begin() as connection:
            for table in TABLES:
                connection.execute(sa.delete(table))

    def close(self) -> None:
        if sa.event.contains(engine(), 'before_cursor_execute',
                             self._before):
            sa.event.remove(engine(), 'before_cursor_execute', self._before)

    def _before(self, connection: typing.Any, cursor: typing.Any,
                statement: str, *rest: typing.Any) -> None:
        self.statements.append(statement)
        if self._away:
            raise sa_exc.OperationalError(statement, None,
                                          Exception('the server is away'))
        if self._deadlocks and statement.startswith('UPDATE'):
            raise db_exc.DBDeadlock(Exception('deadlock'))

    @contextlib.contextmanager
    def away(self) -> typing.Iterator[None]:
        """No statement succeeds."""
        self._away = True
        try:
            yield
        finally:
            self._away = False

    @contextlib.contextmanager
    def deadlocks(self) -> typing.Iterator[None]:
        """No change succeeds."""
        self._deadlocks = True
        try:
            yield
        finally:
            self._deadlocks = False

    def volume(self, volume_id: str, host: str, **values: typing.Any) -> None:
        """Add a row as the API and the scheduler leave it."""
        db_api.volume_create(self.context, {
            'id': volume_id, 'host': host, 'size': 1, 'status': 'creating',
            'volume_type_id': 'type', 'use_quota': True,
            'project_id': 'project', **values})

    def update(self, volume_id: str, **values: typing.Any) -> None:
        db_api.volume_update(self.context, volume_id, values)

    def destroy(self, volume_id: str) -> None:
        db_api.volume_destroy(self.context, volume_id)

    def snapshot(self, volume_id: str, status: str | None = 'available',
                 **values: typing.Any) -> SnapshotId:
        found = db_api.snapshot_create(self.context, {
            'volume_id': volume_id, 'status': status, 'volume_size': 1,
            'volume_type_id': 'type', 'use_quota': True, **values})
        return SnapshotId(found['id'])

    def update_snapshot(self, snapshot_id: str,
                        **values: typing.Any) -> None:
        db_api.snapshot_update(self.context, snapshot_id, values)

    def drop_snapshot(self, snapshot_id: str) -> None:
        db_api.snapshot_destroy(self.context, snapshot_id)

    def purge(self, model: typing.Any, row_id: str) -> None:
        """Leave nothing of a row, as ``cinder-manage db purge`` does."""
        with engine().begin() as connection:
            connection.execute(sa.delete(model).where(model.id == row_id))

    def attachment(self, volume_id: str, **values: typing.Any) -> str:
        """Add an attachment as ``reserve`` does; returns its id."""
        found = db_api.volume_attach(self.context, {
            'volume_id': volume_id, 'attach_status': 'reserved',
            'instance_uuid': 'd53ab99e-5ab0-4374-b9e8-34c0e03b1a1f',
            # So the API writes it (``attachment_create``).
            'connection_info': '{}', **values})
        return found['id']

    def update_attachment(self, attachment_id: str,
                          **values: typing.Any) -> None:
        db_api.volume_attachment_update(self.context, attachment_id, values)

    def drop_attachment(self, attachment_id: str) -> None:
        db_api.attachment_destroy(self.context, attachment_id)

    def service(self, node: str) -> None:
        db_api.service_create(self.context, {
            'host': node, 'binary': 'cinder-volume',
            'topic': 'cinder-volume', 'availability_zone': 'zone of ' + node,
            'uuid': f'service of {node}'[:36]})

    def all(self, model: typing.Any) -> list[typing.Any]:
        with engine().connect() as connection:
            return list(connection.execute(sa.select(model)))
