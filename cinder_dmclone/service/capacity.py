# SPDX-License-Identifier: Apache-2.0
"""Capacity as the scheduler sees it."""

from __future__ import annotations

import dataclasses
import typing

from cinder.common import constants
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import units as oslo_units

from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.host import thin_pool
from cinder_dmclone import names
from cinder_dmclone.relocation import room
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from cinder_dmclone import version as package
from cinder_dmclone.world import World

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

_NO_SPACE = room.Space(units.Bytes(0), units.Bytes(0), units.Bytes(0))


class Stats:
    """The backend's statistics; an idle node forks no process for them.

    Cinder asks every minute, and its schedulers believe the last answer.
    """

    def __init__(self, world: World, configuration: typing.Any,
                 attention: typing.Callable[[], int],
                 enqueue: typing.Callable[[str], None]) -> None:
        """
        :param attention: tells how many LVs somebody has to look at
        :param enqueue: has an LV looked at
        """
        self._world = world
        self._configuration = configuration
        self._attention = attention
        self._enqueue = enqueue
        self._report: lvm.Report | None = None
        self._lost: exceptions.DMCloneException | None = None
        # What was last said of the group or its pool.
        self._said = ''

    def get(self, version: str, filter_function: str | None,
            goodness_function: str | None) -> dict[str, typing.Any]:
        """What ``get_volume_stats`` returns."""
        report, lost = self._read()
        settings = self._world.settings
        thin = bool(self._world.host.group.pool)
        if lost:
            self._tell(lost)
        space = None if lost else self._space(report)
        usable = space or _NO_SPACE
        pool = {
            'pool_name': settings.pool,
            'total_capacity_gb': _gib(usable.size),
            'free_capacity_gb': _gib(usable.free),
            'provisioned_capacity_gb': _gib(usable.provisioned),
            'reserved_percentage': self._configuration.reserved_percentage,
            'max_over_subscription_ratio':
                self._configuration.max_over_subscription_ratio,
            'thin_provisioning_support': thin,
            'thick_provisioning_support': not thin,
            'total_volumes': len(report.lvs),
            # Who asks from there is on this node, see ``weights``.
            names.ADDRESSES: self._addresses(),
            # The whole cloud in ``cinder get-pools --detail``.
            **_moves(report),
            'dmclone_attention': self._attention(),
            'dmclone_version': package.version(),
            'location_info': f'dmclone:{settings.node}:{report.uuid}',
            'filter_function': filter_function,
            'goodness_function': goodness_function,
            'multiattach': True,
            'QoS_support': False,
            # Cinder's schedulers refuse what Nova could not follow.
            'online_extend_support':
                self._configuration.dmclone_online_extend,
            'backend_state': 'up' if space else 'down',
        }
        return {
            'volume_backend_name': settings.pool,
            'vendor_name': 'Open Source',
            'driver_version': version,
            'storage_protocol': constants.ISCSI,
            'shared_targets': False,
            # Where Cinder looks for an image in its cache.
            'clone_across_pools':
                self._configuration.dmclone_clone_across_nodes,
            'pools': [pool],
        }

    def _space(self, report: lvm.Report) -> room.Space | None:
        """What there is for volumes; None if no new one can be."""
        host = self._world.host
        try:
            space = room.space(host, report)
        except exceptions.NoRoom as error:
            self._tell(error)
            self._have_resumed()
            return None
        usage = space.usage
        if not usage or not usage.above(thin_pool.ALARM):
            self._said = ''
        elif self._is_new(str(usage)):
            LOG.error('Thin pool %(pool)s is nearly full: %(used)s are in '
                      'use. When it is full, writes of servers wait, then '
                      'fail.', {'pool': host.group.place, 'used': usage})
        if usage and usage.above(thin_pool.MOST):
            return dataclasses.replace(space, free=units.Bytes(0))
        return space

    def _tell(self, error: exceptions.DMCloneException) -> None:
        if self._is_new(error.msg):
            LOG.error('No new volume can be here: %s', error.msg)

    def _have_resumed(self) -> None:
        """Have a pool go on that LVM has left suspended, whoever called it."""
        report = self._world.host.group.report()
        waiting = (names.lv_uuid(lv.name) for lv in report.lvs.values()
                   if lv.pool in report.interrupted)
        # The first one has all of them go on.
        first = next(filter(None, waiting), None)
        if first:
            self._enqueue(first)

    def _is_new(self, problem: str) -> bool:
        """Whether something else was last said of the group or its pool."""
        before, self._said = self._said, problem
        return problem != before

    def _addresses(self) -> list[str]:
        own = {CONF.my_ip, self._configuration.target_ip_address}
        return sorted(own - {None})

    def _read(self) -> tuple[lvm.Report,
                             exceptions.DMCloneException | None]:
        """The group, or what it was before it was lost, and that it was.

        That LVM is busy, as with a removal that takes long, means nothing.
        """
        try:
            self._report = self._world.host.group.report()
            self._lost = None
        except exceptions.DMCloneException as error:
            if self._report is None:
                raise
            if isinstance(error, (exceptions.CommandFailed,
                                  exceptions.GroupLost)):
                self._lost = error
        return self._report, self._lost


def _moves(report: lvm.Report) -> dict[str, int]:
    """How many LVs hydrate here, and how many others need."""
    hydrating = lent = 0
    for lv in report.lvs.values():
        try:
            tags = lv_tags.Tags.parse(lv.tags)
        except exceptions.CorruptRecord:
            # The reconciler reports it: it is one of ``dmclone_attention``.
            continue
        hydrating += bool(tags.source)
        lent += bool(tags.lent)
    return {'dmclone_hydrating': hydrating, 'dmclone_lent': lent}


def _gib(size: int) -> float:
    return round(size / oslo_units.Gi, 2)
