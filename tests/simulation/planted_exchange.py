# SPDX-License-Identifier: Apache-2.0
"""Mistakes about volumes whose id Cinder has exchanged."""

from __future__ import annotations

from cinder_dmclone.database import volumes as volume_rows
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile import home
from cinder_dmclone.reconcile import observed
from tests.simulation import mistakes

bug = mistakes.bug


@bug('an LV is of the volume whose id it was made for',
     (volume_rows.RowStore, 'homes'), where='story/exchange moved')
def _by_id(self, node, lvs):
    return []


@bug('the id of the volume decides, not what its row names',
     (observed, '_names'), where='story/exchange lent')
def _whose_id(row, stack, here, names=observed._names):
    return not stack.tags.own and names(row, stack, here)


@bug('the new id is not written down', (home, 'decide'),
     where='story/exchange moved')
def _as_it_was(facts, row, decide=home.decide):
    found = decide(facts, row)
    return (decision.Decision(decision.Verdict.REST)
            if found.step is decision.Action.RENAME else found)
