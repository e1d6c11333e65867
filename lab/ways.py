# SPDX-License-Identifier: Apache-2.0
"""Ways to have a volume's row for oneself while others want it too.

Who acquires it writes an offer with a copy that has never been before, of the
row as it was read, which nobody has offered; who releases it takes that back.
"""
from __future__ import annotations

import contextlib
import dataclasses
import time
import typing
import uuid
from collections.abc import Callable, Iterator

from cinder import context as cinder_context
from cinder.objects.fields import VolumeMigrationStatus
from oslo_db import exception as db_exc
import sqlalchemy as sa
from tooz import coordination

from cinder_dmclone.database import rows
from cinder_dmclone.database import volumes
from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models

# What was read, and what was written on the strength of it.
Claim = tuple[str, str]
# How long to wait for a row that somebody else has, in seconds.
PAUSE = 0.01


class Way:
    """How a row is acquired and released.

    :ivar pause: for so many seconds, before a row is looked at again
    :ivar between: called when the row was read and is free, before the write
    """

    def __init__(self, pause: float = PAUSE) -> None:
        self.pause = pause
        self.between: Callable[[], None] = _nothing

    def acquire(self, volume: str) -> Claim:
        """Offer a volume, when nobody else does."""
        while True:
            claim = self._try(volume)
            if claim:
                return claim
            time.sleep(self.pause)

    def release(self, volume: str, held: str) -> Claim:
        """Take back what was ``held``, the row as ``acquire`` left it."""
        raise NotImplementedError

    def _try(self, volume: str) -> Claim | None:
        raise NotImplementedError

    def _wanted(self, volume: str) -> Claim | None:
        """What was read, and what is to be written; None if it is not free."""
        old = _read(volume)
        if _offered(old):
            return None
        self.between()
        return old, _offer(old)


def _nothing() -> None:
    pass


class Driver(Way):
    """Compare-and-swap, by the driver's own code."""

    def __init__(self, pause: float) -> None:
        super().__init__(pause)
        self._store = volumes.RowStore()
        self._held: rows.Row | None = None

    def _try(self, volume: str) -> Claim | None:
        row = self._store.get(VolumeId(volume))
        assert row and row.provider_id
        if row.offer:
            return None
        self.between()
        with contextlib.suppress(exceptions.RowChanged,
                                 exceptions.CannotRelocate):
            self._held = self._store.offer(row, _copy(), rows.Leave())
            return row.provider_id, self._held.provider_id or ''
        return None

    def release(self, volume: str, held: str) -> Claim:
        assert self._held
        after = self._store.withdraw(self._held)
        return held, after.provider_id or ''


class Swap(Way):
    """Compare-and-swap with the statements of the other ways."""

    def _try(self, volume: str) -> Claim | None:
        claim = self._wanted(volume)
        return claim if claim and self._swap(volume, *claim) else None

    def release(self, volume: str, held: str) -> Claim:
        new = _free(held)
        if not self._swap(volume, held, new):
            raise AssertionError(f'volume {volume} was taken away')
        return held, new

    @staticmethod
    def _swap(volume: str, old: str, new: str) -> bool:
        return bool(_repeated(
            db_api.main_context_manager.writer,
            lambda session: _update(session, volume, new,
                                    models.Volume.provider_id == old)))


class ForUpdate(Way):
    """Read with a lock and write, in one transaction."""

    def _try(self, volume: str) -> Claim | None:
        return self._change(volume, acquire=True)

    def release(self, volume: str, held: str) -> Claim:
        claim = self._change(volume, acquire=False)
        assert claim
        return claim

    def _change(self, volume: str, acquire: bool) -> Claim | None:
        def work(session: typing.Any) -> Claim | None:
            old = _select(session, volume, lock=True)
            if acquire and _offered(old):
                return None
            if acquire:
                self.between()
            new = _offer(old) if acquire else _free(old)
            _update(session, volume, new)
            return old, new
        return typing.cast('Claim | None', _repeated(
            db_api.main_context_manager.writer, work))


class Locked(Way):
    """tooz: a lock of the volume while its row is read and saved.

    Each in a transaction of its own, as Cinder's own code does.
    """

    def __init__(self, coordinator: coordination.CoordinationDriver) -> None:
        super().__init__()
        self._coordinator = coordinator

    def _lock(self, volume: str) -> typing.Any:
        return self._coordinator.get_lock(f'volume-{volume}'.encode())

    def _try(self, volume: str) -> Claim | None:
        with self._lock(volume):
            return self._acquire(volume)

    def _acquire(self, volume: str) -> Claim | None:
        claim = self._wanted(volume)
        return claim and _save(volume, *claim)

    def release(self, volume: str, held: str) -> Claim:
        with self._lock(volume):
            return self._release(volume)

    @staticmethod
    def _release(volume: str) -> Claim:
        old = _read(volume)
        return _save(volume, old, _free(old))


class Whole(Locked):
    """tooz: the lock is held until the row is released."""

    def _try(self, volume: str) -> Claim | None:
        # It is known to this object alone that it has the lock.
        self._held = self._lock(volume)
        self._held.acquire()
        claim = self._acquire(volume)
        if not claim:
            # Offered by somebody whose lock was lost.
            self._held.release()
        return claim

    def release(self, volume: str, held: str) -> Claim:
        try:
            return self._release(volume)
        finally:
            self._held.release()


@contextlib.contextmanager
def made(task: dict[str, typing.Any]) -> Iterator[Way]:
    """The way that a task names."""
    if 'locks' not in task:
        kind = {'driver': Driver, 'bare': Swap, 'for update': ForUpdate}
        yield kind[task['way']](task.get('pause', PAUSE))
        return
    coordinator = coordination.get_coordinator(
        task['locks'], uuid.uuid4().hex.encode())
    coordinator.start(start_heart=True)
    try:
        yield {'change': Locked, 'whole': Whole}[task['way']](coordinator)
    finally:
        coordinator.stop()


def _copy() -> Location:
    return Location(NodeName('b@lab'), LvUuid(str(uuid.uuid4())))


def _offered(provider_id: str) -> bool:
    return ProviderId.parse(provider_id).offer is not None


def _offer(provider_id: str) -> str:
    record = ProviderId.parse(provider_id)
    return str(dataclasses.replace(record, offer=_copy()))


def _free(provider_id: str) -> str:
    record = ProviderId.parse(provider_id)
    return str(dataclasses.replace(record, offer=None))


def _repeated(mode: typing.Any, work: Callable[[typing.Any], typing.Any],
              ) -> typing.Any:
    while True:
        with contextlib.suppress(db_exc.DBDeadlock):
            with mode.using(cinder_context.get_admin_context()) as session:
                return work(session)


def _read(volume: str) -> str:
    return str(_repeated(db_api.main_context_manager.reader,
                         lambda session: _select(session, volume)))


def _save(volume: str, old: str, new: str) -> Claim:
    _repeated(db_api.main_context_manager.writer,
              lambda session: _update(session, volume, new))
    return old, new


def _select(session: typing.Any, volume: str, lock: bool = False) -> str:
    """Read the volume and all that must hold for it to be moved."""
    query = session.query(
        models.Volume.provider_id, models.Volume.status,
        sa.or_(models.Volume.group_id.is_not(None),
               models.Volume.consistencygroup_id.is_not(None)),
        sa.exists().where(
            models.VolumeAttachment.volume_id == models.Volume.id,
            models.VolumeAttachment.deleted == sa.false()),
        models.Volume.migration_status).filter(
                models.Volume.id == volume,
                models.Volume.deleted == sa.false())
    found = (query.with_for_update(of=models.Volume) if lock
             else query).one()
    if found[1:4] != ('available', False, False):
        raise AssertionError(f'volume {volume} is {found}')
    return str(found[0])


def _update(session: typing.Any, volume: str, new: str,
            *holds: sa.ColumnElement) -> int:
    # As the driver's offer and withdrawal do.
    status = (VolumeMigrationStatus.MIGRATING if _offered(new)
              else VolumeMigrationStatus.ERROR)
    made: int = session.query(models.Volume).filter(
        models.Volume.id == volume, *holds).update(
            {'provider_id': new, 'migration_status': status},
            synchronize_session=False)
    return made
