# SPDX-License-Identifier: Apache-2.0
"""A server whose disk is on another node, which serves it over iSCSI."""

from __future__ import annotations

import typing

from cinder_dmclone.host.iscsi import targets
from tests.simulation import server
from tests.simulation import truth as truth_module
from tests.unit.fake import mapped

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module

Violation = truth_module.Violation

# Seconds that I/O of a server may wait: its initiator lets it fail after as
# long, and while it waits in the target nobody else can log in there.
LONGEST_SECONDS = 150.0


class Power:
    """What a host without the backend dies with: nothing."""

    alive = True


class Outside:
    """A host without the backend; ``initiator`` is a node's, likewise."""

    host = 'x'
    kernel = Power()
    connector: typing.ClassVar[dict[str, typing.Any]] = {
        'host': host, 'initiator': 'iqn.1993-08.org.debian:01:x'}


Host: typing.TypeAlias = 'Outside | cloud_module.Node'


class Served(server.Server):
    """A disk that os-brick has logged in to.

    :ivar initiator: whose session it is
    """

    def __init__(self, truth: truth_module.Truth, client: Host,
                 data: dict[str, typing.Any]) -> None:
        self.client = client
        # After a boot it is another one.
        self._power = client.kernel
        self.initiator = client.connector['initiator']
        self._iqn = data['target_iqn']
        self._grant = targets.Grant(self.initiator, data['auth_username'],
                                    data['auth_password'])
        cloud = truth.cloud
        home = next(node for node in cloud.nodes.values()
                    if node.portal == data['target_portal'])
        self._undisturbed = cloud.clock.monotonic()
        export = home.targets.exports.get(self._iqn)
        super().__init__(truth, home, export.device if export else '')

    def _open_device(self) -> None:
        """LIO has it open; the session is counted with those of nodes."""
        self.truth.cloud.clients.append(self)

    def _close_device(self) -> None:
        self.truth.cloud.clients.remove(self)

    @property
    def host(self) -> Host:
        return self.client

    @property
    def alive(self) -> bool:
        return self._power.alive

    def logged_in(self, node: cloud_module.Node, iqn: str) -> bool:
        """Whether this is a session of a node's target."""
        return (self.alive and node is self.node and iqn == self._iqn
                and self.admitted)

    @property
    def admitted(self) -> bool:
        """Whether the target is there and takes this initiator."""
        export = self.node.targets.exports.get(self._iqn)
        return bool(export and self.node.up and self._grant in export.grants)

    @property
    def parted(self) -> bool:
        """Whether the network is in the way of a peer."""
        name = getattr(self.client, 'name', None)
        return name is not None and frozenset(
            (name, self.node.name)) in self.truth.cloud.cut

    def discard(self, number: int) -> bool:
        """It is not offered."""
        return False

    def _io(self, attempt: typing.Callable[[], None],
            waiting: server.Waiting | None = None) -> bool:
        self._undisturbed = self.truth.cloud.clock.monotonic()

        def reach() -> None:
            if self.parted:
                self._undisturbed = self.truth.cloud.clock.monotonic()
                raise mapped.Queued()
            if not self.admitted:
                if (self.truth.meddled or self.truth.ends_later
                        or self.here in self.truth.lost):
                    raise mapped.Failed('there is no such target any more')
                self._check('I6 target', 'is not served any more')
                raise mapped.Queued()
            try:
                attempt()
            except mapped.Queued:
                self._check('I6 wedged', 'waits in the target')
                raise
        return super()._io(reach, waiting)

    def _check(self, rule: str, text: str) -> None:
        """The node has to do something about what keeps I/O from ending."""
        tables, process = self.truth.cloud.tables, self.node.process
        now = self.truth.cloud.clock.monotonic()
        if (tables.silent or tables.real or not self.node.up
                or not process.alive or not process.serving):
            self._undisturbed = now
        elif now - self._undisturbed > LONGEST_SECONDS:
            raise Violation(rule, f'{self.initiator} {text}, on '
                            f'{self.node.name}')

    def _failed(self, what: str) -> bool:
        """Reads of what has not arrived fail while the lender is away.

        After a boot there is no path at all until it is back.
        """
        source = self.node.mapper.source(self.here.lv)
        away = source and (source.path_failed or not any(source.below()))
        if away or self.here in self.truth.lost or (
                self.truth.ends_later and not self.admitted):
            return False
        return super()._failed(what)
