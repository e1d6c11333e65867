# SPDX-License-Identifier: Apache-2.0
"""The filter that nova-scheduler loads."""

from __future__ import annotations

import typing

from nova.scheduler import filters
from nova.scheduler import utils

from cinder_dmclone.nova import api


class VolumeRoomFilter(filters.BaseHostFilter):
    """Hosts with room for the volumes that would have to move there.

    Also for those that nova-compute will have made. A volume that is there
    already needs none.
    """

    RUN_ON_REBUILD = False

    def filter_all(self, hosts: typing.Iterable[typing.Any],
                   spec: typing.Any) -> list[typing.Any]:
        """The hosts that have room; asked once for each server."""
        found = list(hosts)
        # Nova asks this of each host otherwise (BaseHostFilter._filter_one).
        if not self.RUN_ON_REBUILD and utils.request_is_rebuild(spec):
            return found
        return api.planner().admit(spec.instance_uuid, found)


def all_filters() -> list[type]:
    """Nova's own filters and this one, for ``available_filters``.

    It may be given twice in nova.conf, but not in what deployment tools read.
    """
    return [*filters.all_filters(), VolumeRoomFilter]
