# SPDX-License-Identifier: Apache-2.0
"""Bring what this node has into line with what the rows say.

Level-triggered: a pass looks at what is, ``decide`` names the next step, and
the step is decided once more under the volume's lock before it is taken. A
node with nothing in flight does not wake up but once a day, for a look at
everything: no query, no process.
"""

from __future__ import annotations

import math
import random
import threading
import typing

from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone.reconcile import actions
from cinder_dmclone.reconcile import decide
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import erasures
from cinder_dmclone.reconcile import hindrances
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import pace
from cinder_dmclone.reconcile import paths
from cinder_dmclone.reconcile import questions
from cinder_dmclone.reconcile import reader
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.reconcile import turns
from cinder_dmclone.reconcile import workers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state
from cinder_dmclone.stack import teardown
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


# Seconds between two tries while the database or LVM does not answer.
LONGEST_PAUSE = 15.0

# More steps than any relocation has: a stack that takes more is going round
# in circles.
MAX_STEPS = 20

# What only people change needs no frequent look.
_PATIENT = (Verdict.WATCH, Verdict.REPORT)


class Reconciler:
    """The steps, and the thread that takes them.

    :cvar everything_seconds: between two looks at everything
    """

    everything_seconds = schedule.EVERYTHING

    def __init__(self, world: World,
                 spawn: typing.Callable[..., None] | None = None) -> None:
        self._world = world
        self._workers = workers.Workers(self._work_and_plan, self._try_again,
                                        spawn)
        self._wake = threading.Condition()
        self._schedule = schedule.Schedule()
        self._told = hindrances.Told(world.settings.node)
        self._missing = hindrances.MissingDisks()
        self._turns = turns.Turns(world.host.initiator, world.clock)
        # What was in flight at the last look.
        self._seen: dict[LvUuid, state.Stack] = {}
        self._reader = reader.Reader(world)
        self._everything_at = math.inf
        self._pace = pace.Pace(world.host, world.clock)
        self.erasures = erasures.Erasures(world)

    # -- the thread ---------------------------------------------------------

    def start(self) -> None:
        """Look at everything once, then at what is in flight."""
        thread = threading.Thread(target=self._run, daemon=True,
                                  name='dmclone-reconciler')
        thread.start()
        self._pace.start()

    def enqueue(self, key: str, seconds: float = 0.0) -> None:
        """Look at an LV, or at all LVs of a volume, as soon as possible.

        :param seconds: or a little later, also if there is a look before that
        """
        with self._wake:
            enqueue = (self._schedule.enqueue_later if seconds
                       else self._schedule.enqueue)
            enqueue(key, self._world.clock.monotonic() + seconds)
            self._wake.notify()

    def path_failed(self, lv: LvUuid) -> None:
        """Look at an LV soon, for a server may wait; not too often.

        At one with a gate, in which a write may wait, at once; at others
        together: all that a lender lends fail with it.
        """
        with self._wake:
            now = self._world.clock.monotonic()
            again = self._schedule.path_failed(lv, now)
            stack = self._seen.get(lv)
            if stack and not stack.hold and not again:
                self._schedule.gather(lv, now)
                self._wake.notify()
                return
            begun = stack and not again and self._schedule.begin(
                lv, -math.inf)
        if stack and begun:
            self._workers.put(stack, workers.Lane.WRITE)
        elif again or not self._workers.hasten(lv, workers.Lane.WRITE):
            with self._wake:
                self._schedule.enqueue(
                    lv, now + schedule.SOONEST if again else now)
                self._wake.notify()

    def attention(self) -> int:
        """How many LVs were reported, and are as they were."""
        return len(self._told.reported)

    def enqueue_all(self) -> None:
        """Look at everything in flight as soon as possible."""
        for lv in self._schedule:
            self.enqueue(lv)

    def _run(self) -> None:
        everything, pause = True, schedule.SOONEST
        while True:
            try:
                self.run_once(everything)
                pause = schedule.SOONEST
            except Exception as error:
                # The loop must outlive any failure: it is what repairs them.
                if isinstance(error, exceptions.DMCloneException):
                    LOG.warning('Reconciling has to wait: %s', error.msg)
                else:
                    LOG.exception('Reconciling failed; trying again later.')
                self._world.clock.sleep(pause)
                everything, pause = True, min(2 * pause, LONGEST_PAUSE)
                continue
            if everything:
                self._plan_everything()
            self._sleep()
            everything = (self._world.clock.monotonic()
                          >= self._everything_at)

    def _plan_everything(self) -> None:
        seconds = self.everything_seconds * random.uniform(
            1 - schedule.JITTER, 1 + schedule.JITTER)
        self._everything_at = self._world.clock.monotonic() + seconds

    def _sleep(self) -> None:
        """Sleep until the next look, or until one at everything is due."""
        with self._wake:
            now = self._world.clock.monotonic()
            first = self._schedule.first()
            first = (self._everything_at if first is None
                     else min(first, self._everything_at))
            self._wake.wait(None if math.isinf(first)
                            else max(first - now, 0))

    # -- one pass -----------------------------------------------------------

    def run_once(self, everything: bool = False) -> None:
        """Look at all LVs that are due, and take their next steps."""
        world = self._world
        now = world.clock.monotonic()
        with self._wake:
            due = self._schedule.due(now)
        if not due and not everything:
            return
        collected = inspect.collect(world.host, patient=True)
        self._pace.follow(collected.values())
        self._missing.look(collected)
        self._told.forget_others(collected)
        with self._wake:
            self._seen = {lv: stack for lv, stack in collected.items()
                          if stack.in_flight}
            enqueued = {
                lv: stack for lv, stack in collected.items()
                if everything or due & stack.keys
                or (stack.in_flight and lv not in self._schedule)}
            self._schedule.nobody(due - enqueued.keys(), now)
            for lv in self._schedule.at_work(enqueued):
                if due & enqueued[lv].keys:
                    # What called for a look may have come after the last one.
                    self._schedule.enqueue_after(lv, now)
                del enqueued[lv]
        try:
            decisions = self._decide_all(enqueued, collected)
        except exceptions.DatabaseAway:
            self._hand_out(paths.decide_all(enqueued, collected), enqueued,
                           now)
            raise
        self._hand_out(decisions, enqueued, now)

    def _hand_out(self, decisions: dict[LvUuid, Decision],
                  stacks: dict[LvUuid, state.Stack], now: float) -> None:
        """Have the steps taken that were decided.

        :param now: when it was looked
        """
        waiting = self._turns.waiting(decisions, stacks)
        for lv, decision in decisions.items():
            if lv in waiting:
                self._plan(Decision(Verdict.WAIT), stacks[lv], now)
                continue
            if isinstance(decision.step, Verdict):
                self._told.tell(lv, decision)
                self._plan(decision, stacks[lv], now)
                continue
            with self._wake:
                begun = self._schedule.begin(lv, now)
            if begun:
                self._workers.put(stacks[lv],
                                  workers.lane(decision, stacks[lv]))

    def _decide_all(self, stacks: dict[LvUuid, state.Stack],
                    collected: dict[LvUuid, state.Stack]) -> dict[
                        LvUuid, Decision]:
        """Decide about stacks with one query; this only enqueues.

        :param collected: all that this node has
        """
        found = self._reader.rows(stacks.values())
        return {lv: decide.decide(self._reader.facts(stack, found,
                                                     collected.get))
                for lv, stack in stacks.items()}

    def _work_and_plan(self, stack: state.Stack,
                       lane: workers.Lane) -> workers.Lane | None:
        """Take steps that belong to a lane.

        :returns: the lane to which the next step belongs, if that is another
        """
        began = self._world.clock.monotonic()
        decision, belongs = self._work(stack, lane)
        if belongs is None:
            self._end(decision, stack, began)
        return belongs

    def _try_again(self, stack: state.Stack) -> None:
        self._end(Decision(Verdict.RETRY), stack,
                  self._world.clock.monotonic())

    def _end(self, decision: Decision, stack: state.Stack,
             began: float) -> None:
        with self._wake:
            self._schedule.end(stack.lv, self._world.clock.monotonic())
        self._told.tell(stack.lv, decision)
        self._plan(decision, stack, began)

    def _plan(self, decision: Decision, stack: state.Stack,
              seen: float) -> None:
        """Plan the next look at a stack.

        :param seen: when it was looked at; who enqueued it since then is
            not forgotten
        """
        lv = stack.lv
        with self._wake:
            now, plan = self._world.clock.monotonic(), self._schedule
            if decision.step is Verdict.REST:
                plan.rest(lv, seen)
                # It may be the last look for a day.
                self._pace.leave(lv)
            elif stack.write_waits:
                plan.hurry(lv, seen, now)
            elif stack.tags.source and stack.clone:
                plan.hydrate(lv, seen, now, stack.clone.hydrated,
                             stack.clone.total)
            elif decision.step is Verdict.RETRY:
                plan.wait(lv, seen, now, _first(stack), schedule.TOLD)
            elif decision.step in _PATIENT:
                plan.wait(lv, seen, now, _first(stack), schedule.SELDOM)
            else:
                plan.wait(lv, seen, now, _first(stack))
            self._wake.notify()

    # -- steps under the lock -----------------------------------------------

    def _work(self, stack: state.Stack, lane: workers.Lane) -> tuple[
            Decision, workers.Lane | None]:
        """Take steps until there is nothing to do now, or not in this lane.

        :returns: the last decision, and the lane for it if that is another
        """
        lv = stack.lv
        # Almost always the row's id; the row is read under the lock only.
        volume = stack.volume
        answers = observed.Answers(going=lane is workers.Lane.ERASURE)
        for _ in range(_most_steps(stack)):
            try:
                decision, found, belongs = self._one_step(
                    lv, volume, answers, lane)
            except exceptions.VolumeLocked as error:
                # Whoever holds it may well be doing what is needed.
                LOG.debug('LV %s: %s', lv, error.msg)
                return Decision(Verdict.RETRY, error.msg), None
            except exceptions.CopyUnusable as error:
                # Nothing here gets better by itself.
                return Decision(Verdict.REPORT, error.msg), None
            except exceptions.DMCloneException as error:
                self._told.failed(lv, error)
                return Decision(Verdict.RETRY, error.msg), None
            if found != volume:
                volume = found
                continue
            if isinstance(decision.step, Verdict):
                return decision, None
            if belongs > lane:
                return decision, belongs
            if decision.ask and not questions.ask(
                    self._world, decision, stack, answers, self._turns):
                return Decision(Verdict.RETRY, 'asked in vain'), None
        return self._endless(lv, decision), None

    def _endless(self, lv: LvUuid, decision: Decision) -> Decision:
        """Steps that lead nowhere are a mistake of this program."""
        LOG.error('LV %(lv)s takes no end of steps, the last is %(step)s.',
                  {'lv': lv, 'step': decision.step})
        return Decision(Verdict.RETRY, 'too many steps')

    def _one_step(self, lv: LvUuid, volume: VolumeId,
                  answers: observed.Answers, lane: workers.Lane
                  ) -> tuple[Decision, VolumeId, workers.Lane]:
        """Decide once more under the lock, and take the step.

        :returns: also whose lock has to be taken, and to which lane the step
            belongs: nothing was done without that lock, or in another lane
        """
        with self._world.locks.volume(volume, deadlines.LOCK_SECONDS):
            try:
                decision, known = self._decide_now(lv, volume, answers)
            except exceptions.DatabaseAway as error:
                decision, known = paths.without_rows(self._world, lv, error)
            found = known.row.id if known.row else volume
            belongs = workers.lane(decision, known.stack)
            taken = found == volume and belongs <= lane and isinstance(
                decision.step, Action)
            if taken:
                self._take(decision, known)
        if taken and decision.step is Action.ERASE and known.stack.bare:
            self._remove(lv, volume, answers)
        return decision, found, belongs

    def _take(self, decision: Decision, known: observed.Facts) -> None:
        was_silent = self._turns.silent(decision, known.stack)
        actions.take(self._world, decision, known)
        with self._wake:
            self._schedule.act(known.stack.lv)
        if was_silent:
            for lv, stack in list(self._seen.items()):
                source = stack.tags.source
                if source and source.portal == was_silent:
                    self.enqueue(lv)

    def _remove(self, lv: LvUuid, volume: VolumeId,
                answers: observed.Answers) -> None:
        """Erase and delete an LV that was stripped.

        The erasure takes long and is done without the lock; whether the LV
        may go is decided again meanwhile, and after it.
        """
        if not self.erasures.erase(lv, lambda: self._decide_now(
                lv, volume, answers)[0].step is Action.ERASE):
            return self.enqueue(lv, schedule.SOONEST)
        with self._world.locks.volume(volume, deadlines.LOCK_SECONDS):
            decision, known = self._decide_now(lv, volume, answers)
            if decision.step is Action.ERASE:
                teardown.teardown(self._world.host, known.stack)
                source = known.stack.tags.source
                if source:
                    self._world.peers.notify(source.node, volume)

    def _decide_now(self, lv: LvUuid, volume: VolumeId,
                    answers: observed.Answers,
                    how: typing.Callable[[observed.Facts], Decision]
                    | None = None) -> tuple[Decision, observed.Facts]:
        known = self._reader.now(lv, volume, answers)
        return (how or decide.decide)(known), known

    def judge(self, lv: LvUuid, volume: VolumeId,
              answers: observed.Answers | None = None) -> tuple[
            Decision, observed.Facts]:
        """What would be done about an LV, as far as this node can tell alone.

        The caller holds the volume's lock, if it acts on that.

        :param answers: what others have said
        """
        return self._decide_now(lv, volume, answers or observed.Answers())

    def settle(self, row: rows.Row, seconds: float = 0.0) -> tuple[
            Decision, observed.Facts]:
        """Undo or repair what is open on the home LV of a volume.

        For entry points; the caller holds the volume's lock. What can take
        long or needs the lender is left to the thread. A copy that cannot
        be assembled is reported: a server can still be detached from it.

        :param seconds: when the thread looks
        """
        lv = row.lv
        answers = observed.Answers()
        for _ in range(MAX_STEPS):
            decision, known = self._decide_now(lv, row.id, answers,
                                               decide.for_request)
            if decision.ask and questions.ask(
                    self._world, decision, known.stack, answers):
                continue
            if decision.step not in actions.SETTLING:
                break
            try:
                actions.take(self._world, decision, known)
            except exceptions.CopyUnusable as error:
                decision = Decision(Verdict.REPORT, error.msg)
                break
        self.enqueue(lv, seconds)
        return decision, known


def _most_steps(stack: state.Stack) -> int:
    """So many steps are more than enough.

    Of each loan and each snapshot two LVs may be asked for: the one that it
    went to, and where that has gone on since.
    """
    return MAX_STEPS + 2 * (len(stack.tags.lent) + len(stack.tags.snaps))


def _first(stack: state.Stack) -> float:
    """The shortest time between two looks at a stack."""
    return (schedule.TOLD if stack.tags.lent or stack.tags.copy
            else schedule.SOONEST)
