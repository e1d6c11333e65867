# SPDX-License-Identifier: Apache-2.0
"""What the operator chose for one backend of this node."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from cinder_dmclone.location import backend_of
from cinder_dmclone.location import host_of
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone import units


@dataclasses.dataclass(frozen=True)
class Rates:
    """How fast volumes hydrate, in bytes a second.

    :ivar floor: each of them, at least, whatever its server does
    :ivar ceiling: all of this backend on this node together, at most; 0 for
        no limit
    """

    floor: units.Bytes
    ceiling: units.Bytes


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the operator chose, in the units the code uses.

    ``budget`` is how long a driver call may take, in seconds; ``max_copies``
    how many LVs of one volume there may be on all nodes; ``serves_the_full``
    whether a server is served in place to whose node its volume cannot move;
    ``ionice`` an option of that for who overwrites what is deleted, or empty;
    ``rates`` is asked each time, as the operator may change them.
    """

    node: NodeName
    pool: str
    target_prefix: str
    portal: str
    least_region: units.Bytes
    hydration_threshold: units.Bytes
    hydration_batch: units.Bytes
    rates: Callable[[], Rates]
    budget: float
    max_copies: int
    serves_the_full: bool
    reserved_percentage: int
    key: bytes = dataclasses.field(repr=False)
    ionice: str = ''

    @property
    def host(self) -> str:
        """This node's name as connectors give it."""
        return host_of(self.node)

    @property
    def backend(self) -> str:
        """The section of ``cinder.conf``; that of its peers is the same."""
        return backend_of(self.node)

    def credentials(self, iqn: str,
                    initiator: str = '') -> tuple[str, str]:
        """CHAP name and password of a target of this node.

        :param initiator: whose they are, if the target admits several
        """
        return (names.chap_user(iqn),
                names.chap_secret(self.key, iqn, initiator))
