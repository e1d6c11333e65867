# SPDX-License-Identifier: Apache-2.0
"""What a cluster of database servers needs: MariaDB or MySQL with Galera."""

from __future__ import annotations

import typing

# SQLAlchemy's names of those that know it.
DIALECTS = ('mysql', 'mariadb')

# ``wsrep_sync_wait`` for SELECT and for UPDATE.
CAUSAL = 1 | 2

_KNOWN = 'dmclone_sees_all'


def see_all(session: typing.Any) -> None:
    """Let a transaction that begins see what was committed on any node.

    A node answers from what it has applied so far. A row from before an
    offer, read after the commit, would look as if the copy was withdrawn.
    """
    connection = session.connection()
    if _KNOWN in connection.info:
        return
    if connection.dialect.name in DIALECTS and connection.exec_driver_sql(
            "SHOW VARIABLES LIKE 'wsrep_sync_wait'").first():
        connection.exec_driver_sql(
            'SET SESSION wsrep_sync_wait = '
            f'@@SESSION.wsrep_sync_wait | {CAUSAL}')
    # It lives as long as the connection does, in the pool too.
    connection.info[_KNOWN] = True
