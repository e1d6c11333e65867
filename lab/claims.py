# SPDX-License-Identifier: Apache-2.0
"""Ways to share out the places of a node in the database.

None is the driver's, which asks the node itself. A place is what one volume
needs; a table has how many there are, or one has who took them.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from cinder import context as cinder_context
from oslo_db import exception as db_exc
import sqlalchemy as sa

from cinder_dmclone.releases import db_api

# Whether one more place of a node was taken.
Claim = Callable[[str, int], bool]

_READ = 'SELECT free FROM places WHERE node = :node'
_TABLES = (
    'CREATE TABLE IF NOT EXISTS places (node VARCHAR(255) PRIMARY KEY, '
    'free INT)',
    'CREATE TABLE IF NOT EXISTS claims (id BIGINT PRIMARY KEY '
    'AUTO_INCREMENT, node VARCHAR(255), KEY (node))')


def prepare(node: str, places: int) -> None:
    """Let a node have so many places."""
    with _writing() as run:
        for statement in _TABLES:
            run(statement)
        run('REPLACE INTO places VALUES (:node, :free)', node=node,
            free=places)


@contextlib.contextmanager
def _writing() -> Iterator[Callable[..., Any]]:
    context = cinder_context.get_admin_context()
    with db_api.main_context_manager.writer.using(context) as session:
        yield lambda text, **values: session.execute(sa.text(text), values)


def _repeated(work: Callable[[], bool | None]) -> bool:
    """Until there is no deadlock, and an outcome."""
    while True:
        with contextlib.suppress(db_exc.DBDeadlock):
            done = work()
            if done is not None:
                return done


def lock(node: str, places: int) -> bool:
    """``SELECT ... FOR UPDATE`` and a change, in one transaction."""
    def once() -> bool:
        with _writing() as run:
            free = run(_READ + ' FOR UPDATE', node=node).scalar_one()
            if free:
                run('UPDATE places SET free = free - 1 WHERE node = :node',
                    node=node)
            return bool(free)
    return _repeated(once)


def swap(node: str, places: int) -> bool:
    """Compare and swap the number of places that are free."""
    def once() -> bool | None:
        with _writing() as run:
            free = run(_READ, node=node).scalar_one()
        if not free:
            return False
        with _writing() as run:
            changed = run('UPDATE places SET free = free - 1 '
                          'WHERE node = :node AND free = :free',
                          node=node, free=free)
            # Else another one has changed it since: once more.
            return True if changed.rowcount else None
    return _repeated(once)


def two_steps(node: str, places: int) -> bool:
    """Write a claim, then count all; too many, and it is taken back."""
    made: list[int] = []

    def write() -> bool:
        with _writing() as run:
            made.append(run('INSERT INTO claims (node) VALUES (:node)',
                            node=node).lastrowid)
        return True

    def count() -> bool:
        with _writing() as run:
            return places >= run('SELECT COUNT(*) FROM claims '
                                 'WHERE node = :node', node=node).scalar_one()

    def take_back() -> bool:
        with _writing() as run:
            run('DELETE FROM claims WHERE id = :id', id=made[-1])
        return False

    _repeated(write)
    return _repeated(count) or _repeated(take_back)


WAYS: dict[str, Claim] = {
    'SELECT ... FOR UPDATE': lock, 'two steps': two_steps,
    'compare-and-swap': swap}
