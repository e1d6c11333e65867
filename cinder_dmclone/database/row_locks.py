# SPDX-License-Identifier: Apache-2.0
"""How long a change waits for a row that another transaction has locked."""

from __future__ import annotations

import contextlib
import typing

import sqlalchemy as sa

from cinder_dmclone.database import causal_reads
from cinder_dmclone import deadlines

_VARIABLE = 'innodb_lock_wait_timeout'
# What it is on a connection that nobody waits on.
_KNOWN = 'dmclone_row_lock_seconds'


@contextlib.contextmanager
def bounded(session: typing.Any) -> typing.Iterator[None]:
    """Let statements inside fail after ``deadlines.ROW_SECONDS`` of waiting.

    A server waits 50 seconds unless told otherwise: longer than a call has.
    Who holds the lock may be a transaction whose connection was lost, which
    the server notices after hours; the reconciler tries again all the time.

    oslo.db makes DBDeadlock of the failure. The connection is Cinder's, too,
    and waits afterwards as before.
    """
    connection = session.connection()
    before = _seconds(connection)
    if before is None or before <= deadlines.ROW_SECONDS:
        yield
    elif getattr(connection.dialect, 'is_mariadb', False):
        with _each_bounded(connection):
            yield
    else:
        with _all_bounded(connection, before):
            yield


@contextlib.contextmanager
def _each_bounded(connection: typing.Any) -> typing.Iterator[None]:
    """MariaDB takes the bound with a statement, so that none more is sent."""
    sa.event.listen(connection, 'before_cursor_execute', _bound, retval=True)
    try:
        yield
    finally:
        sa.event.remove(connection, 'before_cursor_execute', _bound)


def _bound(connection: object, cursor: object, statement: str,
           parameters: typing.Any, *more: object) -> tuple[str, typing.Any]:
    return (f'SET STATEMENT {_VARIABLE} = {int(deadlines.ROW_SECONDS)} '
            f'FOR {statement}', parameters)


@contextlib.contextmanager
def _all_bounded(connection: typing.Any,
                 before: int) -> typing.Iterator[None]:
    """MySQL has no such statement: the bound is set, and set back."""
    _set(connection, int(deadlines.ROW_SECONDS))
    try:
        yield
    finally:
        # One that was lost is not used again.
        if not connection.invalidated:
            _set(connection, before)


def _seconds(connection: typing.Any) -> int | None:
    """What the connection came with; None if its server has no such thing."""
    if _KNOWN not in connection.info:
        found = None
        if connection.dialect.name in causal_reads.DIALECTS:
            found = connection.exec_driver_sql(
                f"SHOW VARIABLES LIKE '{_VARIABLE}'").first()
        connection.info[_KNOWN] = int(found[1]) if found else None
    return typing.cast('int | None', connection.info[_KNOWN])


def _set(connection: typing.Any, seconds: int) -> None:
    connection.exec_driver_sql(f'SET SESSION {_VARIABLE} = {seconds}')
