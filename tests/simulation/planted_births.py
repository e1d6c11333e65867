# SPDX-License-Identifier: Apache-2.0
"""Mistakes about volumes that begin as another one.

See ``planted_loans`` for those about who needs whose LV.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import rows
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile import home
from cinder_dmclone.relocation import birth
from cinder_dmclone.service import births
from tests.simulation import mistakes

bug = mistakes.bug


@bug('a copy is adopted while Cinder makes the volume', (home, 'decide'),
     where='crash/birth home/mute/before/0')
def _at_once(facts, row, decide=home.decide):
    if facts.stack.tags.copy and row.status in rows.BEING_MADE and (
            not row.offer):
        return decision.Decision(decision.Action.ADOPT)
    return decide(facts, row)


@bug('what is written is lent as it is', (births, '_lend'),
     where='story/birth in use')
def _uncut(service, request, source):
    stack = dataclasses.replace(source.stack, devices={})
    return birth.lend(service.world, stack, source.size, request)
