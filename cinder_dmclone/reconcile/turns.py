# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to try who does not answer, for all LVs that need it."""

from __future__ import annotations

import collections
import typing

from cinder_dmclone.host.iscsi.initiator import Initiator
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.stack import state
from cinder_dmclone.world import Clock


# So long nobody asks a node that has not answered.
SILENT_SECONDS = 20.0
# The same of a question for whose answer a server's write waits.
CLAIM_SECONDS = 5.0
# No question takes longer.
ASKED_SECONDS = 60.0


class Turns:
    """One LV of each such lender is worked on after a look, each in turn.

    A login that nobody answers takes longer than there is between two looks,
    and so does a question to a node: the threads would be busy with nothing
    else.
    """

    def __init__(self, initiator: Initiator, clock: Clock) -> None:
        self._initiator = initiator
        self._clock = clock
        # Until when nobody asks a node that was silent; a claim does not wait
        # for what was asked without hurry.
        self._silent: dict[tuple[NodeName, Question], float] = {}
        # How often each lender was tried, by its portal.
        self._tries: collections.Counter[str] = collections.Counter()

    def silent(self, decision: Decision, stack: state.Stack) -> str | None:
        """The portal of a lender that has to be tried, if it was silent."""
        source = stack.tags.source
        if decision.step is not Action.RECONNECT or stack.disk or not source:
            return None
        return source.portal if self._initiator.silent(source.portal) else None

    def waiting(self, decisions: typing.Mapping[LvUuid, Decision],
                stacks: typing.Mapping[LvUuid, state.Stack]) -> set[LvUuid]:
        """The LVs that wait for what another finds out."""
        by_portal: dict[str, list[LvUuid]] = collections.defaultdict(list)
        for lv, decision in decisions.items():
            portal = self.silent(decision, stacks[lv])
            if portal:
                by_portal[portal].append(lv)
        for portal, lvs in by_portal.items():
            # One that fails for a reason of its own must not stand for all.
            lvs.sort()
            del lvs[self._tries[portal] % len(lvs)]
            self._tries[portal] += 1
        return {lv for lvs in by_portal.values() for lv in lvs}

    def to_ask(self, node: NodeName, question: Question) -> bool:
        """Whether a node may be asked now; others may not meanwhile."""
        key, now = (node, question), self._clock.monotonic()
        until = self._silent.get(key)
        if until is None:
            return True
        if now < until:
            return False
        self._silent[key] = now + ASKED_SECONDS
        return True

    def asked(self, node: NodeName, question: Question,
              answers: bool) -> None:
        """Take note of whether a node has answered."""
        if answers:
            self._silent.pop((node, question), None)
            return
        pause = (CLAIM_SECONDS if question is Question.CLAIM
                 else SILENT_SECONDS)
        self._silent[node, question] = self._clock.monotonic() + pause
