# SPDX-License-Identifier: Apache-2.0
"""The weigher that nova-scheduler loads."""

from __future__ import annotations

import typing

import nova.conf
from nova.scheduler import utils
from nova.scheduler import weights
from oslo_config import cfg

from cinder_dmclone.nova import api
from cinder_dmclone.nova.planning import Plan

CONF = nova.conf.CONF

OPTS = [
    cfg.FloatOpt(
        'locality_weight_multiplier', default=5.0,
        help='How much it counts where the volumes of a server are, beside '
             'Nova\'s own weighers, of which most have 1.0. The host with '
             'most of their GiB gets this, one with none of them nothing. '
             'An aggregate may have another value as its property '
             'dmclone_locality_weight_multiplier.'),
]
CONF.register_opts(OPTS, group='dmclone')


class VolumeLocalityWeigher(weights.BaseHostWeigher):
    """Prefers hosts that have the volumes already, by their GiB."""

    minval = 0

    def weight_multiplier(self, host_state: typing.Any) -> float:
        multiplier: float = utils.get_weight_multiplier(
            host_state, 'dmclone_locality_weight_multiplier',
            CONF.dmclone.locality_weight_multiplier)
        return multiplier

    def weigh_objects(self, weighed: list[typing.Any],
                      spec: typing.Any) -> list[float]:
        plan = api.planner().plan(spec.instance_uuid)
        weights_: list[float] = super().weigh_objects(weighed, plan)
        return weights_

    def _weigh_object(self, host_state: typing.Any,
                      plan: Plan | None) -> float:
        return plan.need.at_home(host_state.host) if plan else 0
