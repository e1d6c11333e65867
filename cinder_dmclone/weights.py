# SPDX-License-Identifier: Apache-2.0
"""The weigher that cinder-scheduler loads."""

from __future__ import annotations

import ipaddress
import typing

from cinder.scheduler import weights

from cinder_dmclone import names

# More than Cinder's own weighers have together by default.
MULTIPLIER = 10.0


class CallerNodeWeigher(weights.BaseHostWeigher):
    """Prefers the node that the request has come from.

    nova-compute makes the volumes of a server that boots from an image, and
    blank ones, and says nothing of where it is: only its address does. A
    preference and no more, as an address can be forged.
    """

    minval = 0.0
    maxval = 1.0

    def weight_multiplier(self) -> float:
        return MULTIPLIER

    def _weigh_object(self, backend_state: typing.Any,
                      weight_properties: dict[str, typing.Any]) -> float:
        context = weight_properties['context']
        # A service sends the id of the request that it works for, people and
        # dashboards do not: theirs is no reason to fill the node they are on.
        if not context.global_request_id:
            return 0.0
        caller = parse(context.remote_address)
        own = backend_state.capabilities.get(names.ADDRESSES) or ()
        return float(caller is not None and caller in map(parse, own))


def parse(text: str | None) -> typing.Any:
    """An IP address, or None if there is none.

    :param text: also as proxies write it: the first of several with commas,
        or in brackets (RFC 7239)
    """
    first = (text or '').partition(',')[0].strip(' "')
    if first.startswith('['):
        first = first[1:].partition(']')[0]
    try:
        address = ipaddress.ip_address(first)
    except ValueError:
        return None
    return getattr(address, 'ipv4_mapped', None) or address
