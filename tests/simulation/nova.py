# SPDX-License-Identifier: Apache-2.0
"""A server and what Nova does with its volume.

The order of the calls is Nova's: five tries of an update or a deletion
without a pause, one of a creation; an attachment is complete before a live
migration begins, and errors at its end are ignored.
"""

from __future__ import annotations

import functools
import random
import typing

from cinder_dmclone.host.dm import table
from tests.simulation import cloud as cloud_module
from tests.simulation import control
from tests.simulation import leads
from tests.simulation import outside
from tests.simulation import scheduler as scheduler_module
from tests.simulation import server as server_module
from tests.simulation import truth as truth_module

TRIES = 5
# Of the operator, once faults have stopped.
PATIENCE = 60
PAUSE = 30.0
# How long a server may run whose attachment was deleted.
DISOWNED_SECONDS = 300.0

Refused = control.Refused
Violation = truth_module.Violation


def one_at_a_time(call: typing.Callable[..., None]) -> typing.Callable[
        ..., None]:
    """Nova holds a lock of the server meanwhile."""
    @functools.wraps(call)
    def guarded(self: Nova, *arguments: typing.Any) -> None:
        if self.busy:
            raise Refused('something else goes on with the server')
        self.busy = True
        try:
            call(self, *arguments)
        finally:
            self.busy = False
    return guarded


class Nova:
    """One server, and the volume it may have."""

    def __init__(self, api: control.Api, truth: truth_module.Truth,
                 choices: random.Random, instance: str) -> None:
        self.api = api
        self.truth = truth
        self.cloud = api.cloud
        self.scheduler = api.cloud.scheduler
        self.choices = choices
        self.instance = instance
        self.attachment: str | None = None
        self.server: server_module.Server | None = None
        # Every one there ever was.
        self.opened: list[server_module.Server] = []
        self.writers = 0
        self.busy = False

    # -- what a user asks for -----------------------------------------------

    @one_at_a_time
    def attach(self, node: outside.Host) -> None:
        if self.attachment:
            raise Refused('it has the volume already')
        kernel = node.kernel
        attachment = self.api.reserve(self.instance)
        known = len(self.opened)
        try:
            info = self._retried(lambda: self.api.connect(attachment, node))
            server = self._open(node, kernel, info)
            self.api.complete(attachment)
        except Refused:
            for left in self.opened[known:]:
                left.close()
            self._delete(attachment)
            raise
        self.attachment, self.server = attachment, server
        self.start(server)

    @one_at_a_time
    def detach(self) -> None:
        if not self.attachment or not self.server:
            raise Refused('it does not have the volume')
        attachment, server = self.attachment, self.server
        self.stop(server)
        server.close()
        self._retried(lambda: self.api.disconnect(attachment))
        if self.server is server:
            self.attachment = self.server = None

    def disown(self, attachment: str) -> None:
        """A user has deleted an attachment of a server that has the device.

        With another server on the node, or one that moves to it, nobody can
        tell: this one may be left behind, and be in the way until somebody
        ends it.
        """
        server = self.server
        if attachment != self.attachment or not server:
            return

        def end() -> None:
            self.scheduler.sleep(DISOWNED_SECONDS)
            server.close()
        server.may_fail = True
        self.scheduler.spawn('end', end)

    @one_at_a_time
    def live(self, node: cloud_module.Node, ending: str) -> None:
        """A live migration; ``ending`` is how it goes.

        'success', 'early': the source closes before the first write;
                'never': given up before the server runs on the destination;
        'quiet': it writes only when the source has detached;
        'held': given up when it has written there; 'split': the source goes
        on as well, because the destination's answer was lost;
        'lazy': it writes a little later, and what it had is left behind.
        """
        old, first = self.server, self.attachment
        if not old or not first or not old.alive or old.host is node:
            raise Refused('no server to migrate')
        kernel = node.kernel
        attachment = self.api.tables.attachment(
            self.api.volume, instance_uuid=self.instance)
        back = self.cloud.row(self.api.volume).node == node.name
        info = self.api.connect(attachment, node, once=True)
        try:
            self.api.complete(attachment)
            new = self._open(node, kernel, info, back)
        except Refused:
            self._delete(attachment)
            raise
        if ending == 'never':
            new.close()
            self._delete(attachment)
            return
        self.stop(old)
        old.flush()
        if ending in ('held', 'split'):
            self._fail_late(old, new, attachment, ending)
            return
        if ending in ('early', 'quiet', 'lazy'):
            old.close()
        self.server, self.attachment = new, attachment
        if ending == 'lazy':
            self.start(new, self.choices.choice((0.0, 0.2, 0.5, 1.0)))
            return
        if ending == 'quiet':
            self._delete(first)
        self.start(new)
        new.write(self.choices.randrange(len(self.truth.regions)))
        old.close()
        self._delete(first)

    def _fail_late(self, old: server_module.Server, new: server_module.Server,
                   attachment: str, ending: str) -> None:
        """The destination wrote, then was ended; the source goes on.

        Whichever lost the race for the volume may see errors.
        """
        old.may_fail = new.may_fail = True
        self.start(new)
        if ending == 'split':
            self.start(old)
        self.scheduler.sleep(self.choices.choice((0.0, 1.0, 10.0)))
        self.stop(new, wait=False)
        new.close()
        self._delete(attachment)
        if self.cloud.row(self.api.volume).owner == old.here:
            self.start(old)

    def _open(self, node: outside.Host, kernel: scheduler_module.Owner,
              info: dict[str, typing.Any], back: bool = False,
              ) -> server_module.Server:
        """
        :param back: whether it is the first write of the server, where it
            is now, that takes the volume from here
        """
        if not kernel.alive:
            raise Refused('the node has lost power')
        if info['driver_volume_type'] == 'iscsi':
            server = self._log_in(node, info['data'])
        else:
            server = self._open_device(typing.cast(cloud_module.Node, node),
                                       info['data']['device_path'], back)
        self.opened.append(server)
        server.read(self.choices.randrange(len(self.truth.regions)))
        if not server.alive:
            raise Refused('the node has lost power')
        return server

    def _log_in(self, node: outside.Host,
                data: dict[str, typing.Any]) -> server_module.Server:
        server = outside.Served(self.truth, node, data)
        if not server.admitted:
            server.close()
            if server.node.process.alive and server.node.up and (
                    not self.truth.meddled and not server.parted):
                raise Violation('I6 device', f'{server.node.name} serves '
                                f'nothing to {server.initiator}')
            raise Refused('no answer from the target')
        return server

    def _open_device(self, node: cloud_module.Node,
                     path: str, back: bool) -> server_module.Server:
        if node.mapper.named(path) not in node.mapper.mapped:
            if self.truth.meddled:
                raise Refused('the attachment was deleted meanwhile')
            if self.truth.ends_later:
                raise Refused('the end of another one has come late')
            if back and self.cloud.row(self.api.volume).node != node.name:
                raise Refused('the server wrote meanwhile')
            raise Violation('I6 device', f'{path} was returned and is not '
                            f'on {node.host}')
        return server_module.Server(self.truth, node, path)

    def _retried(self, call: typing.Callable[[], typing.Any]) -> typing.Any:
        for left in reversed(range(TRIES)):
            try:
                return call()
            except Refused:
                if not left:
                    raise

    def _delete(self, attachment: str) -> None:
        try:
            self._retried(lambda: self.api.disconnect(attachment))
        except Refused:
            # Nova logs it and goes on.
            self.cloud.note('the attachment is left behind')

    # -- the server ---------------------------------------------------------

    def start(self, server: server_module.Server,
              seconds: float = 0.0) -> None:
        """Let a server work.

        :param seconds: in which it does nothing yet
        """
        server.running = True
        self.writers += 1
        self.scheduler.spawn(f'server on {server.node.host}', self._work,
                             server, seconds)

    def fill(self) -> None:
        """Read all and write all at the same time."""
        server = self.server
        if not server or not server.running:
            raise Refused('no server to write')
        for number in range(len(self.truth.regions)):
            self.writers += 2
            for what in (server.read, server.write):
                self.scheduler.spawn(f'server on {server.node.host}',
                                     self._one, what, number)

    def trim(self) -> None:
        """Discard all, as a server does whose files are deleted."""
        for number in range(len(self.truth.regions)):
            if self.server and self.server.running:
                self.server.discard(number)

    def trickle(self) -> None:
        """Write all, one after the other, over some time."""
        server = self.server
        if not server or not server.running:
            raise Refused('no server to write')
        self.writers += 1
        self.scheduler.spawn(f'server on {server.node.host}', self._trickle,
                             server)

    def _trickle(self, server: server_module.Server) -> None:
        try:
            for number in range(len(self.truth.regions)):
                if not server.running:
                    return
                server.write(number)
                self.scheduler.sleep(0.1)
        finally:
            self.writers -= 1

    def write_some(self, numbers: typing.Iterable[int]) -> None:
        """Write these regions, one after the other."""
        for number in numbers:
            if self.server and self.server.running:
                self.server.write(number)

    def read_all(self) -> None:
        """What others write it sees, too."""
        for number in range(len(self.truth.regions)):
            if self.server and self.server.running:
                self.server.read(number)

    def flush(self) -> None:
        if self.server and self.server.running:
            self.server.flush()

    def _one(self, what: typing.Callable[[int], bool], number: int) -> None:
        try:
            what(number)
        finally:
            self.writers -= 1

    def _work(self, server: server_module.Server, seconds: float) -> None:
        try:
            if seconds:
                self.scheduler.sleep(seconds)
            for _ in range(self.choices.choice((2, 4, 8))):
                if not server.running:
                    return
                number = self.choices.randrange(len(self.truth.regions))
                what = self.choices.random()
                if what < 0.5:
                    server.write(number)
                elif what < 0.7:
                    server.flush()
                elif what < 0.8:
                    server.discard(number)
                else:
                    server.read(number)
                if self.choices.random() < 0.3:
                    self.scheduler.sleep(self.choices.choice((0.1, 2.0)))
        finally:
            self.writers -= 1

    def stop(self, server: server_module.Server, wait: bool = True) -> None:
        """Pause a server; what it has begun ends."""
        server.running = False
        pause = 0.2
        while wait and self.writers and server.alive:
            self.scheduler.sleep(pause)
            pause = min(2 * pause, 30.0)

    # -- the operator, when all is calm -------------------------------------

    def clean_up(self) -> None:
        """End whatever is left of this server's attachments."""
        for server in self.opened:
            server.close()
        self.attachment = self.server = None
        # A home that is lost cannot hand over: its own comes last.
        for found in reversed(self.api.tables.attachments_of(
                self.api.volume)):
            if found['instance_uuid'] == self.instance:
                attachment = found['id']
                self.patiently('detach', lambda: self.api.disconnect(
                    attachment))

    def end_unattached(self) -> None:
        """End a server whose attachment was deleted under it.

        Another server of its node has the same front.
        """
        if self.server and not self.api.connected(self.attachment):
            self.server.close()

    def patiently(self, what: str, call: typing.Callable[
            [], typing.Any]) -> None:
        for _ in range(PATIENCE):
            try:
                return call()
            except Refused as error:
                why = error
                self.scheduler.sleep(PAUSE)
        raise Violation('liveness', f'{what} does not succeed: {why}')

    def ensure(self, node: cloud_module.Node) -> None:
        """A server that has lost its disk gets it again."""
        if not self.server:
            return
        front = self.server.node.mapper.mapped.get(self.server.name)
        usable = front and not front.table.has(table.Error) and (
            self.server.alive and not self.server.may_fail
            and self.api.connected(self.attachment))
        if usable and not leads.is_volume(self.truth, self.server.here):
            # Its first write has to bring the volume, if nobody has taken it
            # away meanwhile.
            usable = self.server.write(0)
        if not usable:
            self.clean_up()
            self.patiently('attach', lambda: self.attach(node))

    def check_data(self) -> None:
        """Read everything through the server's disk."""
        if self.server:
            self.stop(self.server)
            for number in range(len(self.truth.regions)):
                self.server.read(number)
