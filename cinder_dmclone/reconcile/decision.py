# SPDX-License-Identifier: Apache-2.0
"""A decision: a verdict, a question to another node, or an action."""

from __future__ import annotations

import dataclasses
import enum
import typing

from cinder_dmclone.host.dm import status
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state


class Verdict(enum.Enum):
    """Nothing is done now."""

    REST = 'nothing to do'
    WAIT = 'look again soon'
    RETRY = 'a step could not be taken; try again soon'
    WATCH = 'look again, seldom'
    REPORT = 'cannot be decided here; keep everything, tell the operator'


class Question(enum.Enum):
    """What only another node knows."""

    AGREE = 'ask the home node whether an offered copy may go'
    SHOW = 'ask another node to show its LV'
    CLAIM = 'ask the owner to hand over: a server writes here'


class Action(enum.Enum):
    """What is done here. Each is idempotent and safe to repeat."""

    ACTIVATE = 'let I/O go on'
    WITHDRAW = 'take the offer back'
    REVOKE = 'forget a loan that has ended, or never came to be'
    DISCHARGE = 'write down where the volume went, in place of its loan'
    BAR = 'let what is not the volume have no front, also without a database'
    RULE_OUT = 'make sure that a snapshot was never made'
    UNPIN = 'forget a snapshot'
    STAY = 'take back that a snapshot moves'
    ARRIVE = 'become the snapshot that was copied here'
    ADOPT = 'become the owner that the row already names'
    TAKE_BACK = 'be the volume again: where it went is lost'
    RECORD = 'write down that the LV is the volume'
    LET_GO = 'let the volume be used again'
    RENAME = 'write down which volume it is by now'
    ASSEMBLE = 'put the clone together'
    RECONNECT = 'find the way to the lender again'
    HYDRATE = 'start the copying'
    FINISH = 'swap the clone for the data LV'
    COMPLETE = 'drop what is left of the hydration and record its end'
    GIVE_UP = 'let reads of what has not arrived fail: its lender is lost'
    PAUSE = 'let reads through this copy fail until its lender is back'
    REARM = 'let the next write be reported'
    REJECT = 'answer a write with an error: no server can be here yet'
    LEAD_OVER = 'lead those over who still write what is frozen'
    OPEN = 'open the gate of the front'
    FENCE = 'cut a server off that still has the front of a stale copy'
    CONSUMERS = 'make and drop consumer devices'
    LEND = 'export to the borrower'
    DISCARD = 'destroy a copy that will not be used'
    ERASE = 'delete an LV that nobody needs'


Step = Verdict | Question | Action


@dataclasses.dataclass(frozen=True)
class Decision:
    """A step, why, and what it needs.

    :ivar ask: whom to ask, and about which LVs
    :ivar hindrance: what an operator is told, once, while it is waited for
    """

    step: Step
    why: str = ''
    hindrance: str = ''
    ask: tuple[Location, ...] = ()
    lent: tuple[lv_tags.LoanTag, ...] = ()
    snaps: tuple[lv_tags.SnapTag, ...] = ()
    make: frozenset[names.DeviceName] = frozenset()
    drop: frozenset[names.DeviceName] = frozenset()
    initiators: frozenset[str] = frozenset()


def show(*places: Location) -> Decision:
    """Have LVs shown before anything is decided."""
    return Decision(Question.SHOW, ask=places)


def one_question(decisions: typing.Iterable[Decision]) -> Decision | None:
    """All that has to be shown, in one question: rows are read for each."""
    places = dict.fromkeys(
        place for one in decisions if one.step is Question.SHOW
        for place in one.ask)
    return show(*places) if places else None


_URGENCY: tuple[Step, ...] = (
    Verdict.REPORT, Verdict.RETRY, Verdict.WAIT, Verdict.WATCH, Verdict.REST)


def most_urgent(*verdicts: Decision) -> Decision:
    """Of several verdicts about one LV, the first that counts most."""
    return min(verdicts, key=lambda one: _URGENCY.index(one.step))


def finished(stack: state.Stack) -> Decision | None:
    """What to do about a clone that copies no more, None if it does."""
    if stack.clone is None or stack.clone.mode is not status.Mode.RW:
        return Decision(
            Verdict.REPORT, 'the clone cannot write its metadata; both copies '
            'are kept')
    if stack.clone.complete:
        return Decision(Action.FINISH, 'all regions are here')
    return None


def without_path(stack: state.Stack,
                 lender: state.Stack | None) -> Decision | None:
    """What to do about a clone whose lender cannot be read.

    :param lender: if it is on this node
    :returns: None if it can be read
    """
    assert stack.tags.source is not None
    if lender and lender.tags.source and not lender.has_path:
        return Decision(Verdict.WAIT, 'the lender of its lender is away')
    if stack.has_path:
        return None
    if stack.lender_away:
        return Decision(
            Verdict.WAIT, 'the lender is away', hindrance='its lender '
            f'{stack.tags.source.node} is away. A server that reads what has '
            'not arrived waits until it is back.')
    return Decision(Action.RECONNECT, 'the path to the lender is lost')


def copying(stack: state.Stack, lender: state.Stack | None) -> Decision:
    """What to do about a clone whose lender can be read.

    :param lender: if it is on this node
    """
    assert stack.clone is not None
    if stack.waits_for(lender):
        return Decision(Verdict.WAIT, 'its lender here hydrates first')
    if not stack.clone.hydration:
        return Decision(Action.HYDRATE)
    return Decision(Verdict.WAIT, 'hydrating')
