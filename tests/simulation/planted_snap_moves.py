# SPDX-License-Identifier: Apache-2.0
"""Mistakes about a snapshot that moves to another node.

See ``planted_pins`` for those about one that stays.
"""

from __future__ import annotations

from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import pins
from tests.simulation import mistakes

bug = mistakes.bug

Decision = decision.Decision


@bug('a snapshot arrives before all of it does', (pins, '_arriving'),
     where='story/move left')
def _too_early(known, tag, row):
    return Decision(Action.ARRIVE, snaps=(tag,))


@bug('what a snapshot leaves goes before it has arrived',
     (pins, '_leaving'), where='story/move')
def _left_behind(known, tag, row):
    return None


@bug('nobody takes back what nobody makes', (pins, '_leaving'),
     where='crash/move thin/kill/before/0')
def _waited_for(known, tag, row):
    return Decision(Verdict.WAIT)
