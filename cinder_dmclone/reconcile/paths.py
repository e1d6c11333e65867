# SPDX-License-Identifier: Apache-2.0
"""What to do about the way to a lender while the database is away.

A server may wait for a lender that is there again. What its LV says of itself
is enough to take up the path, or to let no target wait for one that is lost.
Everything else waits for the rows.
"""

from __future__ import annotations

import typing

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state
from cinder_dmclone.world import World


def decide(stack: state.Stack, lender: state.Stack | None,
           why: str = '') -> Decision:
    """The next step for an LV of whose row nothing is known.

    :param lender: if it is on this node
    :param why: nothing is known
    """
    away = (decision.without_path(stack, lender)
            if _is_read(stack) else None)
    if away and stack.served_only and not stack.quiesced:
        return Decision(Action.PAUSE, 'the path to the lender is lost')
    if away and away.step is Action.RECONNECT:
        return away
    return Decision(Verdict.RETRY, why)


def _is_read(stack: state.Stack) -> bool:
    return bool(stack.tags.source and not stack.tags.lost
                and not stack.unreadable and stack.assembled
                and stack.of_kind(*names.CONSUMERS))


def decide_all(stacks: typing.Mapping[LvUuid, state.Stack],
               collected: typing.Mapping[LvUuid, state.Stack]
               ) -> dict[LvUuid, Decision]:
    """The same for many, as far as there is something to do.

    :param collected: all that this node has
    """
    found = {lv: decide(stack, lender(stack, collected.get))
             for lv, stack in stacks.items()}
    return {lv: step for lv, step in found.items()
            if isinstance(step.step, Action)}


def without_rows(world: World, lv: LvUuid,
                 error: exceptions.DatabaseAway) -> tuple[Decision, Facts]:
    """The same, as it is now, with what is known."""
    def refresh(of: LvUuid) -> state.Stack:
        return inspect.refresh(world.host, of)

    stack = refresh(lv)
    found = decide(stack, lender(stack, refresh), error.msg)
    return found, Facts(world.settings.node, stack, None)


def lender(stack: state.Stack,
           stack_of: typing.Callable[[LvUuid], state.Stack | None]
           ) -> state.Stack | None:
    """The stack that an LV hydrates from, if that is on this node."""
    source = stack.tags.source
    return (stack_of(source.lv) or state.Stack(source.lv)
            if source and source.local else None)
