# SPDX-License-Identifier: Apache-2.0
"""Mistakes about volumes whose node, or whose lender, is lost.

See ``planted`` for those about one that moves.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import provider_id
from cinder_dmclone import names
from cinder_dmclone.reconcile import adoption
from cinder_dmclone.reconcile import decide
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile import loans
from cinder_dmclone.relocation import recovery
from cinder_dmclone.service import forgetting
from cinder_dmclone.service import releasing
from cinder_dmclone.stack import clones
from tests.simulation import mistakes

bug = mistakes.bug


def _erased(facts):
    return decision.Decision(decision.Action.ERASE)


@bug('a volume is taken back from a node that works',
     (recovery, 'comes_back'), where='story/recover hasty',
     also=((recovery, '_require_unused', lambda world, row, stack: None),))
def _nobody_asked(world, place):
    return ''


@bug('who reads what was lent is not looked for',
     (recovery, '_require_unused'), where='story/recover halted')
def _unlooked(world, row, stack):
    """Its service is down, after all."""


@bug('an LV is the volume again before the row says so',
     (recovery, 'take_back'), where='crash/recover/power/before/0')
def _resumed_first(world, row, stack, take_back=recovery.take_back):
    after = dataclasses.replace(
        row, provider_id=str(row.generation + 1))
    recovery.resume(world, stack, after, tuple(stack.loans_to(row.owner)))
    take_back(world, row, stack)


@bug('the end of a loan to what is lost is left to its node',
     (loans, 'to_lost_owner'), where='story/recover')
def _left_lent(stack, row):
    return ()


@bug('what it hydrates from is forgotten when it is taken back',
     (recovery, 'take_back'), where='story/recover chain')
def _whole(world, row, stack, take_back=recovery.take_back):
    tags = dataclasses.replace(stack.tags, source=None)
    take_back(world, row, dataclasses.replace(stack, tags=tags))


@bug('what a lender has that works is given up', (recovery, 'comes_back'),
     where='story/give up hasty')
def _given_up_at_once(world, place):
    return ''


@bug('what was given up is waited for', (clones, 'give_up'),
     where='story/give up')
def _waiting(host, stack):
    host.dm.message(str(names.clone(stack.lv)), 'disable_hydration')


@bug('whatever an operator names is forgotten', (forgetting, '_why_not'),
     where='story/forget', also=((decide, '_forgotten', _erased),))
def _forgotten(decided, known):
    return ''


@bug('a tag says that it was given up, and nothing else',
     (clones, '_apply_source'), where='story/give up partly')
def _unmarked(host, stack, path, queue=True,
              apply_source=clones._apply_source):
    tags = dataclasses.replace(stack.tags, lost=None)
    apply_source(host, dataclasses.replace(stack, tags=tags), path, queue)


@bug('whoever reads what was lent is cut off', (releasing, '_why_needed'),
     where='story/release hasty', also=mistakes.UNASKED)
def _nobody_needs(service, known, tag):
    return ''


@bug('no snapshot keeps what an operator releases',
     (releasing, '_why_pinned'), where='story/release snap')
def _nobody_pins(service, known, tag):
    return ''


@bug('what it hydrates from is forgotten when an LV is adopted',
     (adoption, 'record'), where='crash/attach/restore/before/0')
def _without_source(facts):
    return provider_id.ProviderId(facts.stack.tags.own.generation)


@bug('an operator may not adopt what is newer than the row',
     (adoption, 'why_not'), where='crash/attach/restore/before/0')
def _never_adopted(facts, mistaken=False, why_not=adoption.why_not):
    own = facts.stack.tags.own
    return why_not(facts, mistaken) or (
        'newer' if own.generation > facts.row.generation else '')


@bug('nothing says that the volume went on from what is lent no more',
     (releasing, '_went_on'), where='story/release moved')
def _unsaid(known, tag):
    return None
