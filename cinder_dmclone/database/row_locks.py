# SPDX-License-Identifier: Apache-2.0
"""How long a change waits for a row that another transaction has locked."""

from __future__ import annotations

import contextlib
import typing

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
        return
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
