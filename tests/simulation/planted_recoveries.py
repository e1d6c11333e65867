# SPDX-License-Identifier: Apache-2.0
"""Mistakes about volumes whose node, or lender, is lost.

See ``planted`` for those about one that moves.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.reconcile import loans
from cinder_dmclone.relocation import recovery
from tests.simulation import mistakes

bug = mistakes.bug


@bug('a volume is taken back from a node that works',
     (recovery, 'require_lost'), where='story/recover hasty',
     also=((recovery, '_require_unused', lambda world, row, stack: None),))
def _nobody_asked(world, row, place):
    """The operator is believed."""


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
