# SPDX-License-Identifier: Apache-2.0
"""Does a step in a lab, and looks whether it is right."""
from __future__ import annotations

import concurrent.futures
import contextlib
import typing
import uuid
from collections.abc import Callable, Iterator

from lab import power
from lab.errors import LabError
from lab.ledger import PENS, Ledger
from lab.processes import wait_for
from lab.rest import RestError
from lab.show import Failure, expect
from lab.soak import refusals
from lab.soak.model import Model, Step
from lab.soak.outages import Outages
from lab.soak.patience import Patience
from lab.soak.requests import Requests

if typing.TYPE_CHECKING:
    from lab.lab import Lab

# So long after an outage a request may wait for its answer, in seconds.
_ANSWER = 45.0
# So many findings of one volume are told.
_SHOWN = 8


class Actor:
    """The one who does it, in a lab of three nodes.

    :ivar model: what there is, changed by each step
    """

    def __init__(self, lab: Lab, gib: int) -> None:
        """
        :param gib: what a GiB of Cinder's has there, in bytes
        """
        self.model = Model(gib)
        self._lab = lab
        self._outages = Outages(lab, self._died, self._booted)
        self.patience = Patience(self._outages)
        self._requests = Requests(lab, self.patience)
        self._servers: dict[str, power.Server] = {}
        # The server of each volume, as Nova calls it.
        self._instances: dict[str, str] = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(1)

    def close(self) -> None:
        """Let nobody write any more."""
        self.patience.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for server in self._servers.values():
            # What failed has been told.
            with contextlib.suppress(LabError):
                server.die()

    def do(self, step: Step) -> None:
        """Do a step, and apply it.

        :raises Failure: something was not as it must be
        """
        self.patience.begin(outage=bool(step.outage))
        reason = refusals.reason(step, self.model)
        if reason:
            self._refused(step, reason)
            return
        work: Callable[[Step], Ledger | None] = getattr(
            self, f'_{step.verb}')
        if step.outage:
            future = self._pool.submit(work, step)
            self._outages.pass_by(step.outage)
            record = self._answer(future)
        else:
            record = work(step)
        self.model.apply(step, record)
        for server in self._servers.values():
            if server.writes():
                self._listen(server)

    def _answer(self, future: concurrent.futures.Future[Ledger | None]
                ) -> Ledger | None:
        """What comes of work, whatever answer was lost."""
        concurrent.futures.wait([future], _ANSWER)
        if not future.done():
            self._outages.forget_requests()
        return future.result()

    def _refused(self, step: Step, reason: str) -> None:
        def ask() -> None:
            try:
                self._requests.ask(step)
            except RestError as error:
                if error.status not in refusals.STATUSES:
                    raise
                self.patience.said.append(str(error))
            else:
                raise Failure(f'{step}: not refused, although {reason}')
        self.patience.bring_about(str(step), ask)

    # -- making and deleting ------------------------------------------------

    def _create(self, step: Step) -> Ledger | None:
        return self._make(step)

    def _clone(self, step: Step) -> Ledger | None:
        return self._make(step)

    def _snapshot(self, step: Step) -> Ledger | None:
        return self._make(step)

    def _born(self, step: Step) -> Ledger | None:
        return self._make(step)

    def _make(self, step: Step) -> Ledger | None:
        """Make a volume or snapshot; the record of one that is a copy."""
        source = self.model.volumes.get(step.source)
        server = self._servers.get(step.source)
        record: Ledger | None = None

        def make() -> None:
            nonlocal record
            if step.source:
                if server and server.writes():
                    self._listen(server)
                record = self.model.record(step.source).fork(
                    writing=bool(server and server.writes()))
            self._requests.make(step)
        self.patience.bring_about(str(step), make)
        if source and source.writing:
            assert server and record
            # What it writes from now on is of another run.
            self._stop(server)
            record.end_with(server.ledger)
            server.start(self.model.run(source.name))
        return record

    def _delete(self, step: Step) -> None:
        self.patience.bring_about(str(step), lambda: self._requests.remove(
            'volumes', step.name))
        self._servers.pop(step.name, None)

    def _unsnapshot(self, step: Step) -> None:
        self.patience.bring_about(str(step), lambda: self._requests.remove(
            'snapshots', step.name))

    # -- changing -----------------------------------------------------------

    def _extend(self, step: Step) -> None:
        self.patience.bring_about(str(step), lambda: self._requests.extend(
            step.name, step.gib))

    def _revert(self, step: Step) -> None:
        self.patience.bring_about(str(step), lambda: self._requests.revert(
            step.name, step.source))

    def _wait(self, step: Step) -> None:
        """Let servers write while something is away."""

    # -- servers ------------------------------------------------------------

    def _server(self, name: str) -> power.Server:
        """The server of a volume, which has its present record."""
        volume = self.model.volumes[name]
        server = self._servers.get(name)
        if not server:
            server = self._servers[name] = power.Server(
                self._lab, self._requests.id(name), volume.record.owner,
                self._lab.nodes[0], self.model.gib)
        server.ledger = volume.record
        return server

    def _attach(self, step: Step) -> None:
        server = self._server(step.name)
        server.node = self._lab.nodes[step.node - 1]
        instance = self._instances[step.name] = str(uuid.uuid4())

        def attach() -> None:
            server.at = self._requests.attach(step.name, step.node, instance)
            power.wait_device(server.at)
            if not self.model.volumes[step.name].filled:
                server.fill()
        self.patience.bring_about(str(step), attach)
        self._compare(step.name)

    def _detach(self, step: Step) -> None:
        server = self._server(step.name)
        assert server.at
        if server.writes():
            self._stop(server)
        attachment = server.at.id
        self.patience.bring_about(
            str(step), lambda: self._requests.detach(attachment))
        self.patience.bring_about(
            str(step), lambda: self._requests.at_rest(step.name))
        server.at = None

    def _write(self, step: Step) -> None:
        server = self._server(step.name)
        server.start(self.model.run(step.name))

    def _verify(self, step: Step) -> None:
        server = self._server(step.name)
        if server.writes():
            self._stop(server)
        self._compare(step.name)

    def _migrate(self, step: Step) -> None:
        """What Nova and QEMU do: the device is open on both nodes."""
        server = self._server(step.name)
        old = server.at
        assert old
        instance = self._instances[step.name]
        with old.node.hold(old.path):
            def attach() -> None:
                server.at = self._requests.attach(
                    step.name, step.node, instance, beside=old.id)
            try:
                self.patience.bring_about(str(step), attach)
                there = server.at
            finally:
                server.at = old
            if server.writes():
                self._stop(server)
            server.at, server.node = there, self._lab.nodes[step.node - 1]
            # Its first write is what moves the volume.
            server.start(self.model.run(step.name))
            self._wait_flushed(server)
        self.patience.bring_about(
            f'{step}: its old attachment',
            lambda: self._requests.detach(old.id))

    def _wait_flushed(self, server: power.Server) -> None:
        """Wait until each pen of a run has flushed."""
        wanted = server.ledger.flushes + PENS

        def flushed() -> bool:
            self._listen(server)
            return server.ledger.flushes >= wanted
        wait_for(f'flushes of {server.volume}', flushed)

    @staticmethod
    def _listen(server: power.Server) -> None:
        server.listen()
        if server.ledger.findings:
            raise Failure(f'{server.volume}: {server.ledger.findings[0]}')

    def _stop(self, server: power.Server) -> None:
        """Let a server end its run; all that it wrote is durable then."""
        server.stop()
        server.flush()

    def _compare(self, name: str, settled: bool = True) -> None:
        """Look at all that a volume has to hold, and at its size."""
        server = self._server(name)
        assert server.at
        found = server.findings(settled)
        if found:
            raise Failure(f'{name} ({server.volume}) on {server.node.name}: '
                          f'{len(found)} findings: '
                          f'{"; ".join(found[:_SHOWN])}')
        size = int(server.node.run(
            ['blockdev', '--getsize64', server.at.path]).stdout)
        wanted = self.model.volumes[name].gib * self.model.gib
        expect(size >= wanted, f'{name} has {size} bytes, not {wanted}')

    # -- a node whose power is cut ------------------------------------------

    def _of(self, node: int) -> Iterator[str]:
        """Volumes that servers of a node have."""
        for name, volume in self.model.volumes.items():
            if volume.node == node:
                yield name

    def _died(self, node: int) -> None:
        for name in self._of(node):
            self._server(name).die()

    def _booted(self, node: int) -> None:
        for name in self._of(node):
            self._server(name).wait_device()
            self._compare(name)

    # -- the end ------------------------------------------------------------

    def left(self) -> list[str]:
        """What Cinder still has, in words."""
        return self._requests.left()
