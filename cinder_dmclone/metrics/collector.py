# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told: read from disks and kernel while it asks."""

from __future__ import annotations

import collections
import dataclasses
import threading
import typing

from prometheus_client import core

from cinder_dmclone.events import moves
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import status
from cinder_dmclone.host import lvm
from cinder_dmclone.host import thin_pool
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import roles
from cinder_dmclone.stack import state
from cinder_dmclone import version

PREFIX = 'cinder_dmclone_'
DATA, METADATA = 'data', 'metadata'
_LV = ('volume', 'lv')
_HYDRATION = (*_LV, 'lender')

# What each tells, in words of the page; its labels beside ``backend``.
METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    'info': ('1; the label is the release that runs.', ('version',)),
    'readable': (
        '1 if the volume group could be read, and for data the devices on '
        'it; 0 if not: nothing else is told of it then.', ('role',)),
    'volume_group_size_bytes': (
        'Size of the volume group; of the thin pool for data, if it is thin.',
        ('role',)),
    'volume_group_free_bytes': (
        'What of the volume group, or of the thin pool, is not allocated.',
        ('role',)),
    'lvs': ('How many logical volumes there are.', ('role',)),
    'attention': (
        'How many logical volumes cinder-volume has reported, and are as '
        'they were.', ()),
    'hydration_size_bytes': (
        'Size of a logical volume that hydrates.', _HYDRATION),
    'hydration_copied_bytes': (
        'How much of it is here, arrived or written here.', _HYDRATION),
    'lender_path_up': (
        '1 if the lender can be read; 0 if not: who reads what has not '
        'arrived waits.', _HYDRATION),
    'clone_failed': (
        '1 if the clone of a logical volume can no longer write its '
        'metadata; 0 if it can.', _LV),
    'held_writes': (
        'How many writes wait at the gate of a copy until the volume is '
        'handed over.', _LV),
    'moves_total': (
        'How many moves of volumes from this node have ended since '
        'cinder-volume was started.', ('result',)),
}
_RESULTS = {moves.What.END: 'moved', moves.What.ERROR: 'withdrawn'}

# By name: the values of the labels, in their order, and what is told.
Samples = dict[str, list[tuple[tuple[str, ...], float]]]


class Count:
    """How many moves of volumes have ended, and how, since this was made."""

    def __init__(self) -> None:
        self.ended = dict.fromkeys(_RESULTS.values(), 0)
        # Volumes move side by side.
        self._guard = threading.Lock()

    def __call__(self, what: moves.What, move: moves.Move,
                 reason: str) -> None:
        """A ``moves.Listener``."""
        if what in _RESULTS and not move.snapshot:
            with self._guard:
                self.ended[_RESULTS[what]] += 1


@dataclasses.dataclass(frozen=True)
class Source:
    """A backend of this node.

    :ivar attention: tells how many LVs somebody has to look at; None where
        no reconciler runs
    :ivar moves: None where no volume is moved
    """

    host: Host
    attention: typing.Callable[[], int] | None = None
    moves: Count | None = None


class Collector:
    """Looks when it is asked, and keeps nothing but why it could not.

    :ivar failed: the backends that could not be read when it was asked last,
        and why
    """

    def __init__(self, *sources: Source, patient: bool = False) -> None:
        """
        :param patient: as ``VolumeGroup.report`` has it
        """
        self._sources = sources
        self._patient = patient
        self.failed: dict[NodeName, str] = {}

    def describe(self) -> typing.Iterable[core.Metric]:
        """What there may be, without a look."""
        return self._families().values()

    def collect(self) -> typing.Iterable[core.Metric]:
        """A look at all backends; one that fails does not hide others."""
        self.failed.clear()
        families = self._families()
        for source in self._sources:
            backend = source.host.settings.backend
            for name, samples in self._look(source).items():
                for labels, value in samples:
                    families[name].add_metric((backend, *labels), value)
        return families.values()

    @staticmethod
    def _families() -> dict[str, core.Metric]:
        return {name: (
            core.CounterMetricFamily if name.endswith('_total')
            else core.GaugeMetricFamily)(
                PREFIX + name, meaning, labels=('backend', *labels))
            for name, (meaning, labels) in METRICS.items()}

    def _look(self, source: Source) -> Samples:
        host = source.host
        found: Samples = collections.defaultdict(list)
        found['info'].append(((version.version(),), 1))
        if source.attention:
            found['attention'].append(((), source.attention()))
        if source.moves:
            found['moves_total'] = [((result,), count) for result, count
                                    in source.moves.ended.items()]
        groups = {DATA: host.group}
        if host.own_meta_group:
            groups[METADATA] = host.own_meta_group
        for role, group in groups.items():
            try:
                report = group.report(self._patient)
                usage = group.usage() if role == DATA and group.pool else None
                stacks = (inspect.collect(host, self._patient)
                          if role == DATA else {})
            except exceptions.DMCloneException as error:
                self.failed[host.settings.node] = error.msg
                found['readable'].append(((role,), 0))
                continue
            found['readable'].append(((role,), 1))
            _add_group(found, role, usage or report)
            if role == DATA:
                add_stacks(found, stacks)
        return found


def _add_group(found: Samples, role: str,
               room: lvm.Report | thin_pool.Usage) -> None:
    found['volume_group_size_bytes'].append(((role,), room.size))
    found['volume_group_free_bytes'].append(((role,), room.free))


def add_stacks(found: Samples,
               stacks: typing.Mapping[LvUuid, state.Stack]) -> None:
    """Tell of the LVs of a backend."""
    counts = collections.Counter(map(roles.role, stacks.values()))
    found['lvs'] = [((role.value,), counts[role]) for role in roles.Role]
    for stack in stacks.values():
        name = (stack.volume, stack.lv)
        if stack.hold:
            found['held_writes'].append((name, stack.held_writes))
        if stack.clone:
            found['clone_failed'].append(
                (name, stack.clone.mode is not status.Mode.RW))
        lender = stack.tags.hydrates_from
        if stack.clone and stack.clone.total and not stack.waits_for(
                stacks.get(lender.lv) if lender else None):
            of = (*name, lender.node if lender else '')
            found['lender_path_up'].append((of, stack.has_path))
            found['hydration_size_bytes'].append((of, stack.clone.size))
            found['hydration_copied_bytes'].append((of, stack.clone.copied))
