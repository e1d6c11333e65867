# SPDX-License-Identifier: Apache-2.0
"""What is asked of other nodes before something can be decided."""

from __future__ import annotations

import collections
import typing

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.ports import Host
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.observed import Answers
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.reconcile.turns import Turns
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack.state import Stack
from cinder_dmclone import units
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)

# More questions than that lead to no answer.
MOST = 10


def show(host: Host, lv: LvUuid) -> messages.Shown:
    """What this node has under an LV uuid, now."""
    report = host.group.report()
    stack = inspect.refresh(host, lv)
    own, snaps = stack.tags.own, stack.tags.snaps
    known = own or snaps and snaps[0]
    if stack.data is None:
        state = LvState.MISSING
    elif stack.tags.erased:
        state = LvState.ERASED
    elif stack.tags.copy:
        state = LvState.COPY
    elif not known or stack.unreadable or not stack.data.devnum:
        # One that is not active cannot be read: its disk may be missing.
        state = LvState.UNCLEAR
    elif stack.tags.source or stack.of_kind(names.Kind.CLONE,
                                            names.Kind.SOURCE):
        # What is left of it may hold what a lender on this node lends.
        state = LvState.HYDRATING
    elif _is_lost(host, stack.data):
        state = LvState.UNCLEAR
    else:
        state = LvState.COMPLETE
    return messages.Shown(
        state=state, generation=known.generation if known else 0,
        size=stack.data.size if stack.data else units.Bytes(0),
        group=report.uuid, source=stack.tags.hydrates_from,
        snapshots=[tag.snapshot for tag in snaps])


def _is_lost(host: Host, lv: lvm.LogicalVolume) -> bool:
    """Whether a disk of an LV is lost; whoever asks may delete another copy.

    The kernel has the LV still when one of its disks has gone, and LVM's word
    is as old as the report. One that is suspended is not read: that waits.
    """
    wrong = lv.health or ('' if lv.suspended else host.group.probe(lv.name))
    if wrong:
        LOG.error('LV %(lv)s cannot be read: %(error)s',
                  {'lv': lv.name, 'error': wrong})
    return bool(wrong)


def ask(world: World, decision: Decision, stack: Stack,
        answers: Answers, turns: Turns | None = None) -> bool:
    """Put the question of a decision; whether it can be decided once more.

    The caller may hold the volume's lock: the node that is asked takes none.

    :param answers: get the answer, or that of an LV there is none
    :param turns: of those for whom nobody waits
    """
    if decision.step is Question.SHOW:
        _have_shown(world, decision.ask, stack, answers, turns)
        return True
    place, = decision.ask
    here, peers = Location(world.settings.node, stack.lv), world.peers
    question = decision.step
    assert isinstance(question, Question)
    if turns and not turns.to_ask(place.node, question):
        return False
    heard = False
    try:
        match decision.step:
            case Question.AGREE:
                answers.agreed[place.node] = peers.ask(
                    place.node, messages.Agree(stack.volume, here))
            case Question.CLAIM:
                peers.ask(place.node, messages.HandOver(
                    stack.volume, here, world.settings.pool))
        heard = True
    except (exceptions.PeerUnreachable, exceptions.PeerRefused) as error:
        heard = isinstance(error, exceptions.PeerRefused)
        _waits(stack, error)
        return False
    finally:
        if turns:
            turns.asked(place.node, question, heard)
    return True


def find_out(world: World, judge: typing.Callable[
        [Answers], tuple[Decision, Facts]]) -> Answers:
    """What other nodes say, until nothing more is asked or nobody answers.

    It changes nothing: no home is asked to hand its volume over.

    :param judge: what would be done, with the answers so far
    """
    answers = Answers()
    for _ in range(MOST):
        decision, known = judge(answers)
        if decision.step is Question.CLAIM or not decision.ask or not ask(
                world, decision, known.stack, answers):
            break
    return answers


def _have_shown(world: World, places: typing.Iterable[Location],
                stack: Stack, answers: Answers, turns: Turns | None) -> None:
    """Ask all nodes at once; this one asks itself without a message."""
    by_node: dict[NodeName, list[Location]] = collections.defaultdict(list)
    for place in places:
        if place.node == world.settings.node:
            answers.shown[place] = show(world.host, place.lv)
        elif place.node in answers.unreachable or (
                turns and place.node not in by_node
                and not turns.to_ask(place.node, Question.SHOW)):
            answers.silent[place] = _unreachable(place.node)
        else:
            by_node[place.node].append(place)
    found = world.peers.ask_each({
        node: [messages.Show(place.lv) for place in asked]
        for node, asked in by_node.items()})
    for node, asked in by_node.items():
        if turns:
            turns.asked(node, Question.SHOW, not any(
                isinstance(answer, exceptions.PeerUnreachable)
                for answer in found[node]))
        for place, answer in zip(asked, found[node]):
            if isinstance(answer, messages.Shown):
                answers.shown[place] = answer
                continue
            said = node not in answers.unreachable
            if isinstance(answer, exceptions.PeerUnreachable):
                answers.silent[place] = _unreachable(node)
                answers.unreachable.add(node)
            else:
                reason = str(answer.kwargs['reason']).rstrip('.')
                answers.silent[place] = f'{node} cannot show it: {reason}'
            if said:
                _waits(stack, answer)


def _unreachable(node: NodeName) -> str:
    return f'{node} does not answer'


def _waits(stack: Stack, error: exceptions.DMCloneException) -> None:
    LOG.info('LV %(lv)s waits: %(error)s',
             {'lv': stack.lv, 'error': error.msg})
