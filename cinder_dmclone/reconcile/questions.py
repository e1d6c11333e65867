# SPDX-License-Identifier: Apache-2.0
"""What is asked of other nodes before something can be decided."""

from __future__ import annotations

import typing

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.stack import state
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


def ask(world: World, decision: Decision, stack: state.Stack,
        answers: dict[str, typing.Any]) -> bool:
    """Put the question of a decision; whether it was answered.

    Only the home node may hold the volume's lock meanwhile: the node that is
    asked takes none.

    :param answers: get the answer
    """
    place, lv, peers = decision.ask, stack.lv, world.peers
    assert place is not None
    here = Location(world.settings.node, lv)
    try:
        match decision.step:
            case Question.SHOW:
                answers['shown'][place] = peers.ask(
                    place.node, messages.Show(place.lv))
            case Question.AGREE:
                answers['agreed'][place.node] = peers.ask(
                    place.node, messages.Agree(stack.volume, here))
            case Question.CLAIM:
                peers.ask(place.node, messages.HandOver(
                    stack.volume, here, world.settings.pool))
    except (exceptions.PeerUnreachable, exceptions.PeerRefused) as error:
        LOG.info('LV %(lv)s waits: %(error)s',
                 {'lv': lv, 'error': error.msg})
        return False
    return True
