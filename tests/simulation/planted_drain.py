# SPDX-License-Identifier: Apache-2.0
"""Mistakes about volumes that leave a node which is drained."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone.database import volumes
from tests.simulation import mistakes

bug = mistakes.bug


@bug('a volume leaves, and Cinder is not told', (rows.Leave, 'begun'),
     where='story/drain', also=((rows.Leave, 'offered', {}),))
@property
def _untold(purpose):
    return purpose


@bug('what has not left is migrated for ever', (rows.Row, 'migrates'),
     where='crash/drain/kill/before/0')
@property
def _for_ever(row):
    return False


class _Early(rows.Migrate):
    committed = rows.Left.committed


@bug('a volume goes on before Cinder has written where it is',
     (volumes.RowStore, 'commit'), where='story/migrate on')
def _early(store, row, owner, purpose, *rest, commit=volumes.RowStore.commit):
    if isinstance(purpose, rows.Migrate):
        purpose = _Early()
    return commit(store, row, owner, purpose, *rest)


class _Endless(rows.Migrate):
    committed = {}


@bug('a migration that has ended goes on for Cinder',
     (volumes.RowStore, 'commit'), where='story/drain')
def _unended(store, row, owner, purpose, *rest,
             commit=volumes.RowStore.commit):
    if isinstance(purpose, rows.Migrate):
        purpose = _Endless()
    return commit(store, row, owner, purpose, *rest)


@bug('what was wanted while it should leave is wanted for ever',
     (rows.Row, 'let_down'), where='crash/drain wanted/kill/before/0')
@property
def _wanted(row):
    return False
