# SPDX-License-Identifier: Apache-2.0
"""One schedule: a story, its faults, calm, and what must hold then."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import sys
import traceback
import typing
from unittest import mock
import uuid

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.reconcile import actions
from cinder_dmclone.reconcile import reconciler
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.simulation import chance
from tests.simulation import cloud as cloud_module
from tests.simulation import control
from tests.simulation import faults
from tests.simulation import invariants
from tests.simulation import nova
from tests.simulation import scheduler as scheduler_module
from tests.simulation import stories
from tests.simulation import teller
from tests.simulation import truth as truth_module
from tests.unit.fake import database
from tests.unit.fake import storage

Violation = truth_module.Violation

REGIONS = 8
# A node that waits for another takes one a second or so.
MAX_STEPS = 240000
# Virtual seconds: of a story with its faults, and until all is at rest.
STORY_SECONDS = 20000.0
REST_SECONDS = 20000.0
# How long a story goes on with a volume that is lost.
SLICE_SECONDS = 200.0


@dataclasses.dataclass(frozen=True)
class Spec:
    """All that a schedule depends on.

    :ivar name: tells how to carry it out again
    :ivar switch: how likely tasks take turns at a call; 0: never, they run
        until they wait
    :ivar slowness: how likely a change takes time
    """

    name: str
    story: stories.Story
    plan: faults.Plan = dataclasses.field(default_factory=faults.Plan)
    switch: float = 0.0
    slowness: float = 0.0

    @classmethod
    def of_seed(cls, seed: int) -> Spec:
        choices = random.Random(f'spec {seed}')
        others = random.Random(f'others {seed}')
        return cls(f'seed/{seed}', chance.of_seed(choices, others),
                   faults.Plan.of_seed(choices).muted(others),
                   choices.choice((0.02, 0.1, 0.3, 0.7)),
                   choices.choice((0.0, 0.1, 0.5)))


@dataclasses.dataclass
class Outcome:
    """What came of a schedule."""

    spec: Spec
    violation: Violation | None = None
    changes: int = 0
    messages: int = 0
    injected: int = 0
    steps: int = 0
    trace: list[str] = dataclasses.field(default_factory=list)


class Schedule:
    """Carries out a spec."""

    def __init__(self, spec: Spec, trace: bool) -> None:
        database.engine()
        self.spec = spec
        self.outcome = Outcome(spec)
        self.choices = random.Random(f'run {spec.name}')
        self.scheduler = scheduler_module.Scheduler(
            self.choices, spec.switch, MAX_STEPS)
        self._tracing = trace

    def run(self) -> Outcome:
        with self._patched():
            try:
                self._build()
                self._tell()
            except Violation as error:
                self.outcome.violation = error
            except scheduler_module.Deadlock as error:
                self.outcome.violation = Violation('I8 deadlock', str(error))
            except scheduler_module.Endless as error:
                self.outcome.violation = Violation('liveness', str(error))
            except Exception as error:
                self._note(traceback.format_exc())
                self.outcome.violation = Violation(
                    'unexpected', f'{type(error).__name__}: {error}')
                self.outcome.violation.__cause__ = error
            finally:
                self._count()
                self.scheduler.stop()
        return self.outcome

    @contextlib.contextmanager
    def _patched(self) -> typing.Iterator[None]:
        """Fresh names and surprises are the schedule's own."""
        fresh = random.Random(f'uuid {self.spec.name}')
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(
                uuid, 'uuid4', lambda: uuid.UUID(
                    int=fresh.getrandbits(128), version=4)))
            # A pure function, and half of the time goes into it.
            stack.enter_context(mock.patch.object(
                lv_tags, 'parse_tag',
                functools.lru_cache(4096)(lv_tags.parse_tag)))
            for module in (endpoint, reconciler):
                stack.enter_context(mock.patch.object(
                    module.LOG, 'exception', self._surprise))
            if self._tracing:
                stack.enter_context(mock.patch.object(
                    actions.LOG, 'info', self._log))
            stack.enter_context(mock.patch.object(
                connections, '_tell_user', lambda *rest: None))
            yield

    def _surprise(self, *rest: object) -> None:
        """A failure that the product did not expect."""
        error = sys.exc_info()[1]
        self._note(traceback.format_exc())
        if self.scheduler.failure is None:
            self.scheduler.failure = Violation(
                'unexpected', f'{type(error).__name__}: {error}')
            self.scheduler.failure.__cause__ = error

    def _log(self, text: str, values: dict[str, typing.Any]) -> None:
        self._note('   ' + text % values)

    def _note(self, text: str) -> None:
        if self._tracing:
            task = self.scheduler.current()
            self.outcome.trace.append(
                f'{self.scheduler.now - 1000:8.1f} '
                f'{task.name if task else "-":24} {text}')

    # -- the story ----------------------------------------------------------

    def _build(self) -> None:
        story = self.spec.story
        self.cloud = cloud_module.Cloud(
            self.scheduler, self.choices, story.hosts,
            last=dict(story.last), own_metadata=story.own_metadata,
            serves_the_full=story.serves_the_full)
        self.cloud.note = self._note
        self.cloud.slowness = self.spec.slowness
        for node in self.cloud.nodes.values():
            if node.host in story.thin:
                node.group.pool = storage.POOL
            if node.host in story.pools:
                node.group.pool_size = units.Bytes(
                    story.pools[node.host] * storage.REGION)
        first = next(iter(self.cloud.nodes.values()))
        volume = self.cloud.create(first)
        self.cloud.tables.update(volume, multiattach=story.multiattach)
        self.truth = truth_module.Truth(self.cloud, volume, first, REGIONS,
                                        story.holes)
        lv = first.group.volumes[names.data_lv(LvUuid(volume))]
        lv.blocks = self.truth.first_data()
        lv.flush()
        self.api = control.Api(self.cloud, volume)
        self.api.truth = self.truth
        self.injector = faults.Injector(self.cloud, self.truth,
                                        self.spec.plan)
        self.api.fate = self.injector.fate
        self.watch = invariants.Watch(
            self.cloud, self.truth,
            strict=story.multiattach and not self.spec.plan.fates)
        if self._tracing:
            changed = self.cloud.changed

            def show(call: typing.Any) -> None:
                self._note(f'   {call} {_short(call.arguments)}')
                changed(call)
            self.cloud.changed = show
        self.novas = [nova.Nova(self.api, self.truth, self.choices, name)
                      for name in ('server-1', 'server-2')]

    def _tell(self) -> None:
        who = teller.Teller(self.cloud, self.api, self.truth, self.novas,
                            self.choices)
        self.scheduler.run(self.scheduler.now)
        told = [self.scheduler.spawn('story', who.tell, line)
                for line in self.spec.story.lines]
        end = self.scheduler.now + STORY_SECONDS
        while not self.scheduler.run(self.scheduler.now + SLICE_SECONDS,
                                     told):
            if self.scheduler.now > end or (
                    self.truth.kept is not None
                    and not self.spec.story.goes_on):
                break
        self.scheduler.run(self.scheduler.now
                           + self.choices.choice((0.0, 3.0, 60.0)))
        self.injector.repair_all()
        self._note('-- faults have stopped')
        self.scheduler.spawn('operator', who.release)
        if self.truth.kept is None:
            # What only waited for that ends.
            self.scheduler.run(self.scheduler.now + REST_SECONDS, told)
        self.watch.check()
        self.scheduler.spawn('ending', who.calm)
        self._run('the calm', REST_SECONDS)
        self._note('-- at rest')
        self.watch.check()
        invariants.Rest(self.cloud, self.truth).check()
        self.scheduler.spawn('end', who.end, self.spec.story.delete)
        self._run('the end', REST_SECONDS)
        self.watch.check()
        invariants.Rest(self.cloud, self.truth).check()

    def _run(self, what: str, seconds: float) -> None:
        if not self.scheduler.run(self.scheduler.now + seconds):
            raise Violation('liveness', f'{what} does not come to rest')

    def _count(self) -> None:
        if hasattr(self, 'injector'):
            self.outcome.changes = self.injector.changes
            self.outcome.messages = self.injector.messages
            self.outcome.injected = self.injector.injected
        self.outcome.steps = self.scheduler.steps


def _short(arguments: tuple[typing.Any, ...]) -> str:
    return ' '.join(str(one) for one in arguments
                    if not callable(one))[:150]


def run(spec: Spec, trace: bool = False) -> Outcome:
    """Carry a schedule out."""
    return Schedule(spec, trace).run()
