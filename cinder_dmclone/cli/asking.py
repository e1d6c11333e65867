# SPDX-License-Identifier: Apache-2.0
"""What other nodes show of LVs, in one look at all that a node has.

Each LV is asked about once, and who does not answer is asked no more: a
question that is not answered takes as long as a time-out, and there may be
many LVs of one node, and many nodes that do not answer.
"""

from __future__ import annotations

import collections
from concurrent import futures
import typing

from cinder_dmclone.cli import decisions
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import questions
from cinder_dmclone.world import World

# Nodes that are waited for at a time.
AT_ONCE = 8

_Found = dict[Location, messages.Shown | None]


class Shows:
    """The answers of one look."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._found: _Found = {}
        self._silent: set[NodeName] = set()
        self._works = {world.settings.node: True}

    def gather(self, places: typing.Iterable[Location]) -> None:
        """Ask about LVs of many nodes that work, several nodes at a time."""
        by_node: dict[NodeName, list[Location]] = collections.defaultdict(list)
        for place in sorted(set(places), key=str):
            if place.node != self._world.settings.node:
                by_node[place.node].append(place)
        up = self._world.peers.up(by_node)
        self._works |= {node: node in up for node in by_node}
        by_node = {node: by_node[node] for node in up}
        pool = futures.ThreadPoolExecutor(AT_ONCE)
        try:
            # A node is asked by one thread.
            for found in pool.map(self._ask_node, by_node.values()):
                self._found.update(found)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def works(self, node: NodeName) -> bool:
        """Whether a node reports in, or is this one."""
        if node not in self._works:
            self._works[node] = self._world.peers.is_up(node)
        return self._works[node]

    def of(self, place: Location) -> messages.Shown | None:
        """What a node has under an LV uuid; None if it does not say."""
        if place.node == self._world.settings.node:
            return questions.show(self._world.host, place.lv)
        if place not in self._found:
            self._found.update(self._ask_node([place]))
        return self._found[place]

    def _ask_node(self, places: typing.Sequence[Location]) -> _Found:
        return {place: self._ask(place) for place in places}

    def _ask(self, place: Location) -> messages.Shown | None:
        if place.node in self._silent:
            return None
        try:
            return decisions.ask(self._world, place.node,
                                 messages.Show(place.lv))
        except exceptions.PeerRefused:
            return None
        except exceptions.PeerUnreachable:
            self._silent.add(place.node)
            return None
