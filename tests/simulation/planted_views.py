# SPDX-License-Identifier: Apache-2.0
"""Mistakes about what somebody reads.

See ``planted`` for those about one volume that moves.
"""

from __future__ import annotations

from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile import views
from cinder_dmclone.stack import teardown
from tests.simulation import mistakes

bug = mistakes.bug


@bug('an LV goes although it is read', (views, 'considered'),
     where='story/backup leaves',
     also=((teardown, '_require_closed', lambda stack, *kinds: None),))
def _goes(known, found, considered=views.considered):
    kept = considered(known, found)
    return found if found.step is Action.ERASE else kept


@bug('what is read is taken away when no status is a reason for it',
     (views, 'unused'), where='story/backup reset')
def _unused(stack, row, snapshots):
    return frozenset(() if row and row.is_read
                     else stack.of_kind(names.Kind.VIEW))


@bug('what nobody reads any more stays', (views, 'considered'),
     where='story/backup reset')
def _stays(known, found):
    return found
