# SPDX-License-Identifier: Apache-2.0
"""What the processes of test_galera do to the same volumes, for lab.crew.

Each is cinder-api (Cinder's own code), cinder-volume on some node (the
driver's RowStore) and a reconciler that meddles, in random order.
"""
from __future__ import annotations

import contextlib
import random
import threading
import time
import typing
import uuid
from collections.abc import Callable
from concurrent import futures

from cinder import context as cinder_context
from cinder import exception
from cinder import objects
from cinder.objects import base
from cinder.volume import api as volume_api
from cinder.volume import rpcapi
from oslo_db import exception as db_exc
import sqlalchemy as sa

from cinder_dmclone.database import rows
from cinder_dmclone.database.volumes import RowStore
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import db_api
from lab.races import NODES
from tests.functional.requests import Requests

Task = dict[str, typing.Any]


class Failed(Exception):
    """Cinder's API failed, as it does on a cluster of equal nodes.

    It tries no COMMIT again that was refused, and looks for what it has just
    written on a node that does not have it yet.
    """


# Seconds for which a connection waits for a lock: longer than any test.
_PATIENCE = 3600

# What Cinder's API and the driver answer if a volume is not as it must be.
_REFUSED = (exception.InvalidVolume, exception.VolumeNotFound,
            exception.InvalidHost, exception.InvalidSnapshot,
            exception.SnapshotNotFound, exceptions.CannotRelocate, Failed)


@contextlib.contextmanager
def _asking() -> typing.Iterator[None]:
    try:
        yield
    except (db_exc.DBDeadlock,
            exception.VolumeAttachmentNotFound) as error:
        raise Failed from error


def _context() -> cinder_context.RequestContext:
    return cinder_context.RequestContext('user', 'project', is_admin=True)


def _copy(row: rows.Row) -> Location:
    node = random.choice([node for node in NODES if node != row.node])
    return Location(NodeName(node), LvUuid(str(uuid.uuid4())))


class Rival:
    """One process; notes every change that it was told it made."""

    def __init__(self, volumes: list[VolumeId], deletes: float) -> None:
        self._volumes = list(volumes)
        # Cinder's backup writes its status whatever the volume's is, and one
        # that was asked to be deleted may be asked so again.
        self._kept = self._volumes[::2]
        self._deletes = deletes
        self.requests = Requests()
        self._store = RowStore()
        self._api = volume_api.API()
        self.claims: list[tuple[str, str, str, str]] = []
        self.refused = 0

    def turn(self) -> None:
        """Try one thing on one volume."""
        volume = random.choice(self._volumes)
        kept = volume in self._kept
        act = random.choices(
            (self._attach, self._migrate, self._move, self._snapshot,
             *(self._asked(request) for request in (
                 self.requests.extend, self.requests.upload,
                 self.requests.delete_snapshot, self.requests.backup)),
             self._delete),
            (6, 4, 4, 1, 1, 1, 0.5, kept, 0 if kept else self._deletes))[0]
        try:
            act(volume)
        except exceptions.RowChanged:
            self.refused += 1
        except _REFUSED:
            self.refused += 1
            row = self._store.get(volume)
            if row and row.deleted:
                self._volumes.remove(volume)

    def _note(self, step: str, before: rows.Row, after: rows.Row) -> rows.Row:
        self.claims.append((step, before.id, before.provider_id or '',
                            after.provider_id or ''))
        return after

    # -- the users ------------------------------------------------------

    def _attach(self, volume: VolumeId) -> None:
        found = objects.Volume.get_by_id(_context(), volume)
        instance = str(uuid.uuid4())
        made: list[str] = []
        try:
            try:
                with _asking():
                    self._api.attachment_create(_context(), found, instance)
            finally:
                # Also of a request that failed half way.
                row = self._store.get(volume)
                made = [one.id for one in row.attachments
                        if one.instance == instance] if row else []
            self._move(volume)
        finally:
            for one in made:
                self.claims.append(('reserve', volume, '', one))
                self._detach(volume, one)

    def _detach(self, volume: VolumeId, attachment: str) -> None:
        """Until it is gone: Cinder itself may look at a node that lags."""
        while True:
            with contextlib.suppress(db_exc.DBDeadlock):
                objects.Volume.get_by_id(_context(), volume).finish_detach(
                    attachment)
            row = self._store.get(volume)
            assert row
            if not row.attachment(attachment):
                return

    def _migrate(self, volume: VolumeId) -> None:
        found = objects.Volume.get_by_id(_context(), volume)
        node = random.choice(NODES)
        with _asking():
            self._api.migrate_volume(_context(), found, f'{node}#pool', None,
                                     False, False)
        # From here on as VolumeManager.migrate_volume does.
        self._migration(volume, 'migrating')
        try:
            self._move(volume)
        finally:
            self._migration(volume, 'success')

    @staticmethod
    def _migration(volume: str, status: str) -> None:
        while True:
            with contextlib.suppress(db_exc.DBDeadlock):
                db_api.volume_update(_context(), volume,
                                     {'migration_status': status})
                return

    def _delete(self, volume: VolumeId) -> None:
        found = objects.Volume.get_by_id(_context(), volume)
        with _asking():
            self._api.delete(_context(), found)
        self.claims.append(('delete', volume, '', ''))
        row = self._store.get(volume)
        while row and row.offer:
            with contextlib.suppress(exceptions.RowChanged):
                self._note('withdraw', row, self._store.withdraw(row))
            row = self._store.get(volume)
        while True:
            with contextlib.suppress(db_exc.DBDeadlock):
                db_api.volume_destroy(_context(), volume)
                return

    @staticmethod
    def _asked(request: Callable[[VolumeId], None]
               ) -> Callable[[VolumeId], None]:
        def act(volume: VolumeId) -> None:
            with _asking():
                request(volume)
        return act

    # -- the driver -----------------------------------------------------

    def _snapshot(self, volume: VolumeId) -> None:
        row = self._store.get(volume)
        assert row
        with _asking():
            self.requests.snapshot(volume, row.owner, _copy(row))

    def _move(self, volume: VolumeId) -> None:
        """Go on with a volume from wherever it is found."""
        row = self._store.get(volume)
        assert row
        purpose = (rows.ForAttachment(row.attachments[0].id)
                   if row.attachments else rows.Migrate())
        if row.source and not row.offer:
            row = self._note('complete', row, self._store.complete(row))
        if not row.offer:
            row = self._note('offer', row, self._store.offer(
                row, _copy(row), purpose))
        assert row.offer
        if random.random() < 0.3:
            self._note('withdraw', row, self._store.withdraw(row))
        else:
            self._note('commit', row, self._store.commit(
                row, rows.Owner(row.offer, 'pool'), purpose, row.owner))


def race(task: Task, start: typing.Any) -> Task:
    """Try this and that until so many seconds are over."""
    rival = Rival(task['volumes'], task['deletes'])
    random.seed(task['seed'])
    start()
    end = time.monotonic() + task['seconds']
    while time.monotonic() < end:
        rival.turn()
    return {'claims': rival.claims, 'refused': rival.refused,
            'snapshots': rival.requests.deleted,
            'requests': rival.requests.made, 'deadlocks': start.deadlocks}


def services(task: Task, start: Callable[[], None]) -> Task:
    """Register a cinder-volume for each node."""
    start()
    for node in NODES:
        objects.Service(
            _context(), host=node, binary='cinder-volume',
            topic='cinder-volume', availability_zone='nova', report_count=1,
            rpc_current_version=rpcapi.VolumeAPI.RPC_API_VERSION,
            object_current_version=base.OBJ_VERSIONS.get_current()).create()
    return {}


# -- one thing at a time ----------------------------------------------------

def _through(port: int) -> sa.Engine:
    """Connect to one node from now on."""
    engine = db_api.get_engine()
    engine.dispose()

    @sa.event.listens_for(engine, 'do_connect')
    def connect(dialect: object, record: object, arguments: object,
                options: dict[str, typing.Any]) -> None:
        options['port'] = port
    return engine


def _offer(volume: VolumeId) -> rows.Row:
    store = RowStore()
    row = store.get(volume)
    assert row
    return store.offer(row, _copy(row), rows.Migrate())


def conflict(task: Task, start: typing.Any) -> Task:
    """Change a row that another node changes just before the COMMIT."""
    store, engine = RowStore(), _through(task['port'])
    start()
    row = store.get(task['volume'])
    assert row

    def rival(connection: object) -> None:
        other = sa.create_engine(task['rival'])
        with other.begin() as change:
            change.execute(sa.text('UPDATE volumes SET display_name = '
                                   "'rival' WHERE id = :id"),
                           {'id': row.id})
        other.dispose()
    sa.event.listen(engine, 'commit', rival, once=True)
    after = store.offer(row, _copy(row), rows.Migrate())
    return {'provider_id': after.provider_id, 'deadlocks': start.deadlocks}


def late(task: Task, start: Callable[[], None]) -> Task:
    """Renew an offer on one node while a COMMIT of it waits on another.

    The commit is as one whose connection was lost: it has been sent, and
    nobody knows when the database carries it out.
    """
    store, engine = RowStore(), _through(task['port'])
    start()
    offered = _offer(task['volume'])
    assert offered.offer
    owner = rows.Owner(offered.offer, 'pool')
    under_way, arrives = threading.Event(), threading.Event()

    def wait(connection: object) -> None:
        under_way.set()
        arrives.wait()
    sa.event.listen(engine, 'commit', wait, once=True)
    with futures.ThreadPoolExecutor() as pool:
        commit = pool.submit(store.commit, offered, owner, rows.Migrate(),
                             offered.owner)
        under_way.wait()
        _through(task['other'])
        shown = store.get(offered.id)
        renewal = pool.submit(store.renew, offered)
        while not (renewal.done() or _somebody_waits(task['watch'])):
            time.sleep(0.05)
        waits = not renewal.done()
        arrives.set()
    return {'as before': shown == offered, 'waits': waits,
            'renewed': _made(renewal), 'committed': _made(commit)}


def _somebody_waits(url: str) -> bool:
    """Whether a transaction waits for the lock of another one."""
    watch = sa.create_engine(url)
    try:
        with watch.connect() as connection:
            return bool(connection.execute(sa.text(
                'SELECT 1 FROM information_schema.innodb_trx '
                "WHERE trx_state = 'LOCK WAIT'")).first())
    finally:
        watch.dispose()


def _made(change: futures.Future[rows.Row]) -> bool:
    with contextlib.suppress(exceptions.RowChanged):
        change.result()
        return True
    return False


def locked(task: Task, start: Callable[[], None]) -> Task:
    """Renew an offer whose row somebody else has locked for good."""
    store, engine = RowStore(), _through(task['port'])

    @sa.event.listens_for(engine, 'connect')
    def connect(connection: typing.Any, record: object) -> None:
        connection.cursor().execute(
            f'SET SESSION innodb_lock_wait_timeout = {_PATIENCE}')
    start()
    offered = _offer(task['volume'])
    other = sa.create_engine(task['holder'])
    with other.begin() as holder, futures.ThreadPoolExecutor() as pool:
        holder.execute(sa.text('SELECT id FROM volumes WHERE id = :id '
                               'FOR UPDATE'), {'id': offered.id})
        made = _made(pool.submit(store.renew, offered))
    other.dispose()
    with engine.connect() as connection:
        _, patience = connection.execute(sa.text(
            "SHOW VARIABLES LIKE 'innodb_lock_wait_timeout'")).one()
    return {'made': made, 'as ever': int(patience) == _PATIENCE,
            'later': bool(store.renew(offered).offer)}


def lag(task: Task, start: typing.Any) -> Task:
    """Change a row on one node, look at it on another that lags."""
    start()
    _through(task['port'])
    offered = _offer(task['volume'])
    engine = _through(task['lagging'])
    with engine.connect() as connection:
        plain = connection.execute(
            sa.text('SELECT provider_id FROM volumes WHERE id = :id'),
            {'id': task['volume']}).scalar_one()
    engine.dispose()
    row = RowStore().get(task['volume'])
    assert row
    return {'offered': offered.provider_id, 'plain': plain,
            'store': row.provider_id}


def careless(task: Task, start: Callable[[], None]) -> Task:
    """Read, and write what follows from it on no condition."""
    row = RowStore().get(task['volume'])
    assert row and row.provider_id
    became = f'1;offer={_copy(row)}'
    start()
    while True:
        with contextlib.suppress(db_exc.DBDeadlock):
            db_api.volume_update(_context(), row.id, {'provider_id': became})
            return {'claims': [(row.id, row.provider_id, became)]}
