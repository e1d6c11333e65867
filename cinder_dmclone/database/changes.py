# SPDX-License-Identifier: Apache-2.0
"""How a row is changed: by compare-and-swap, and not for long."""

from __future__ import annotations

import contextlib
import dataclasses
import typing

from cinder import context as cinder_context
from cinder import exception
from oslo_db import exception as db_exc
from oslo_log import log as logging
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from cinder_dmclone.database import causal_reads
from cinder_dmclone.database import row_locks
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.releases import db_api

LOG = logging.getLogger(__name__)

# A deadlock was rolled back whole: the change may be tried again at once.
DEADLOCK_RETRIES = 3
# What tells that the database does not answer.
AWAY = (db_exc.DBError, sa_exc.SQLAlchemyError, exception.ServiceUnavailable)

# So many rows are asked for in one statement.
AT_ONCE = 20

Found = typing.TypeVar('Found')


def portions(wanted: typing.Sequence[Found]
             ) -> typing.Iterator[typing.Sequence[Found]]:
    """What is asked for, in parts of which each goes into one statement."""
    return (wanted[start:start + AT_ONCE]
            for start in range(0, len(wanted), AT_ONCE))


@contextlib.contextmanager
def silent() -> typing.Iterator[None]:
    """For what an operator asks, about no volume in particular.

    :raises DatabaseSilent: if the database does not answer
    """
    try:
        yield
    except AWAY as error:
        # What follows is a link to SQLAlchemy's manual.
        raise exceptions.DatabaseSilent(
            reason=str(error).partition('\n')[0]) from error


@dataclasses.dataclass(frozen=True)
class Change:
    """What the one row becomes for which all conditions hold.

    :ivar model: the class of its table
    """

    model: typing.Any
    holds: tuple[sa.ColumnElement, ...]
    values: typing.Mapping[str, typing.Any]


class _NotAll(Exception):
    """A row is not as it has to be: nothing is changed."""


def make(*changes: Change) -> int:
    """Make all of these changes, or none, in one transaction.

    :returns: how many rows the first has changed; 0 if not every change has
        found its row
    """
    context = cinder_context.get_admin_context()
    try:
        with db_api.main_context_manager.writer.using(context) as session:
            causal_reads.see_all(session)
            with row_locks.bounded(session):
                return [_make(session, change) for change in changes][0]
    except _NotAll:
        return 0


def _make(session: typing.Any, change: Change) -> int:
    made: int = session.query(change.model).filter(
        change.model.deleted == sa.false(), *change.holds).update(
            dict(change.values), synchronize_session=False)
    if not made:
        raise _NotAll
    return made


def patiently(attempt: typing.Callable[[], Found],
              clock: typing.Callable[[], float]) -> Found:
    """Try once more after a deadlock.

    Cinder's own ``conditional_update`` repeats a change for up to 25 seconds:
    more than a driver call has.
    """
    deadline = clock() + deadlines.ROW_SECONDS
    for _ in range(DEADLOCK_RETRIES):
        try:
            return attempt()
        except db_exc.DBDeadlock:
            # Too long a wait, also for other nodes, ends like this too.
            if clock() >= deadline:
                raise
            LOG.info('The database ended a deadlock; trying again.')
    return attempt()
