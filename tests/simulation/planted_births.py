# SPDX-License-Identifier: Apache-2.0
"""Mistakes about volumes that begin as another one.

See ``planted_loans`` for those about who needs whose LV.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import rows
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile import home
from cinder_dmclone.relocation import birth
from cinder_dmclone.service import answers
from cinder_dmclone.service import births
from tests.simulation import mistakes

bug = mistakes.bug


def _uncut(service, request):
    known = service.settled(service.row(request.volume), 'cloned')
    stack = dataclasses.replace(known.stack, devices={})
    return birth.lend(service.world, stack, stack.data.size, request)


@bug('a copy is adopted while Cinder makes the volume', (home, 'decide'),
     where='crash/birth home/mute/before/0')
def _at_once(facts, row, decide=home.decide):
    if facts.stack.tags.copy and row.status in rows.BEING_MADE and (
            not row.offer):
        return decision.Decision(decision.Action.ADOPT)
    return decide(facts, row)


bug('what is written is lent as it is', (births, 'lend'),
    where='story/birth in use',
    also=((answers.ANSWERS, messages.Lend, _uncut),))(_uncut)
