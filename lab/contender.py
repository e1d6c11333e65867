# SPDX-License-Identifier: Apache-2.0
"""Ways to change a volume's row while others do, for lab.crew.

Every way makes the same change, an offer with a copy that has never been
before, of the row as it was read.
"""
from __future__ import annotations

import contextlib
import random
import time
import typing
import uuid
from collections.abc import Callable

from cinder import context as cinder_context
from oslo_config import cfg
from oslo_db import exception as db_exc
import sqlalchemy as sa
from tooz import coordination

from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database import rows
from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models

if typing.TYPE_CHECKING:
    from lab import crew

# What was read, and what was written on the strength of it.
Claim = tuple[str, str]

_PURPOSE = rows.Migrate()


def turns(task: dict[str, typing.Any],
          start: crew.Start) -> dict[str, typing.Any]:
    """Change volumes so many times; how long each took, in seconds."""
    cfg.CONF.set_override('mysql_wsrep_sync_wait', task.get('sync'),
                          'database')
    seconds, claims = [], []
    with _ways(task) as way:
        # What is done once in a process is not measured.
        volume = random.choice(task['volumes'])
        claims.append((volume, *way(volume)))
        start()
        begin = time.monotonic()
        for _ in range(task['turns']):
            volume = random.choice(task['volumes'])
            turn = time.monotonic()
            claims.append((volume, *way(volume)))
            seconds.append(time.monotonic() - turn)
    return {'seconds': seconds, 'claims': claims, 'begin': begin,
            'end': time.monotonic(), 'deadlocks': start.deadlocks}


@contextlib.contextmanager
def _ways(task: dict[str, typing.Any]) -> typing.Iterator[
        Callable[[str], Claim]]:
    if not task.get('locks'):
        yield {'swap': _swap, 'for update': _for_update}[task['way']]
        return
    coordinator = coordination.get_coordinator(
        task['locks'], uuid.uuid4().hex.encode())
    coordinator.start(start_heart=True)
    try:
        yield lambda volume: _locked(coordinator, volume)
    finally:
        coordinator.stop()


def _next(provider_id: str) -> str:
    record = ProviderId.parse(provider_id)
    return str(ProviderId(record.generation, offer=_copy()))


def _copy() -> Location:
    return Location(NodeName('b@lab'), LvUuid(str(uuid.uuid4())))


def _swap(volume: str) -> Claim:
    store = volumes.RowStore()
    while True:
        row = store.get(VolumeId(volume))
        assert row and row.provider_id
        with contextlib.suppress(exceptions.RowChanged):
            changed = store.offer(row, _copy(), _PURPOSE)
            assert changed.provider_id
            return row.provider_id, changed.provider_id


def _for_update(volume: str) -> Claim:
    while True:
        with contextlib.suppress(db_exc.DBDeadlock):
            context = cinder_context.get_admin_context()
            with db_api.main_context_manager.writer.using(context) as session:
                old = _select(session, volume, lock=True)
                new = _next(old)
                _update(session, volume, new)
            return old, new


def _locked(coordinator: coordination.CoordinationDriver,
            volume: str) -> Claim:
    """As Cinder's own code does: read and save, each on its own."""
    with coordinator.get_lock(f'volume-{volume}'.encode()):
        old = _repeated(db_api.main_context_manager.reader,
                        lambda session: _select(session, volume))
        new = _next(old)
        _repeated(db_api.main_context_manager.writer,
                  lambda session: _update(session, volume, new))
        return old, new


def _repeated(mode: typing.Any, work: Callable[[typing.Any], typing.Any],
              ) -> typing.Any:
    while True:
        with contextlib.suppress(db_exc.DBDeadlock):
            with mode.using(cinder_context.get_admin_context()) as session:
                return work(session)


def _select(session: typing.Any, volume: str, lock: bool = False) -> str:
    """Read the volume and all that must hold for it to be moved."""
    query = session.query(
        models.Volume.provider_id, models.Volume.status,
        models.Volume.migration_status,
        sa.or_(models.Volume.group_id.is_not(None),
               models.Volume.consistencygroup_id.is_not(None)),
        sa.exists().where(
            models.VolumeAttachment.volume_id == models.Volume.id,
            models.VolumeAttachment.deleted == sa.false())).filter(
                models.Volume.id == volume,
                models.Volume.deleted == sa.false())
    found = (query.with_for_update(of=models.Volume) if lock
             else query).one()
    if found[1:] != ('available', 'migrating', False, False):
        raise AssertionError(f'volume {volume} is {found}')
    return found[0]


def _update(session: typing.Any, volume: str, new: str) -> None:
    session.query(models.Volume).filter(models.Volume.id == volume).update(
        {'provider_id': new}, synchronize_session=False)
