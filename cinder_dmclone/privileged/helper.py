# SPDX-License-Identifier: Apache-2.0
"""The privileged helper, oslo.privsep's daemon, as its callers meet it.

It is started by the first call, and anew by the first one after it has ended.
What a call that it ended with has done is not known: only its caller can tell
whether to make it again. Nor does it begin a call of a process that has ended
meanwhile: what was decided by that one holds no lock any more, and numbers of
devices may be those of others by now.
"""

from __future__ import annotations

import functools
import os
import select
import typing

from oslo_log import log as logging
from oslo_privsep import comm
from oslo_privsep import daemon
from oslo_privsep import priv_context

from cinder_dmclone import exceptions

LOG = logging.getLogger(__name__)

_Function = typing.Callable[..., typing.Any]
# So many of its words say which command it is; the rest is the same for all.
_WORDS = 4


class _Ended(Exception):
    """The daemon has ended, says its channel."""


class Channel(daemon._ClientChannel):
    """The way to one daemon, which ends with it."""

    def _reader_main(self, reader: typing.Any) -> None:
        super()._reader_main(_to_its_end(reader))

    def send_recv(self, msg: typing.Any,
                  timeout: float | None = None) -> typing.Any:
        """
        :raises _Ended: whereas an OSError of a call is part of its answer
        """
        try:
            return super().send_recv(msg, timeout)
        except OSError as error:
            raise _Ended(error) from error


class _Rootwrap(Channel, daemon.RootwrapClientChannel):
    """To one that a command starts, as root."""


class _Forking(Channel, daemon.ForkingClientChannel):
    """To one that is a child of this process."""


_CHANNELS = {priv_context.Method.ROOTWRAP: _Rootwrap,
             priv_context.Method.FORK: _Forking}


@functools.lru_cache(maxsize=1)
def _descriptor(pid: int) -> int:
    """Of a process, the one that a daemon works for; it stays open."""
    return os.pidfd_open(pid)


def _lives(pid: int) -> bool:
    """Whether a process has not ended; also where /proc hides it."""
    try:
        # Readable when it has, be it reaped or not (pidfd_open(2)).
        return not select.select([_descriptor(pid)], [], [], 0)[0]
    except ProcessLookupError:
        return False


def _to_its_end(reader: typing.Any) -> typing.Any:
    """What a daemon says until it says no more, however it ended.

    One that dies with a request unread resets the connection
    (``unix_release_sock`` in net/unix/af_unix.c). To privsep only the end of
    file is an end: those who wait for an answer would do so for ever, and all
    later calls fail (``ClientChannel._reader_main`` in its comm.py).
    """
    try:
        yield from reader
    except OSError as error:
        LOG.debug('The privileged helper says no more: %s', error)


class Context(priv_context.PrivContext):
    """privsep's, whose calls raise errors of this driver.

    Every call may raise HelperNotStarted and HelperEnded beside what it raises
    itself, one with a timeout CommandTimeout, too.
    """

    channel: daemon._ClientChannel | None

    def start(self, method: priv_context.Method = (
            priv_context.Method.ROOTWRAP)) -> None:
        """Start the daemon, unless it runs; the others wait for that.

        privsep's own restart has no lock: of two who see that it has ended
        the second would stop the one that the first has started.

        :raises HelperNotStarted: nothing was done
        """
        with self.start_lock:
            if self.channel is not None:
                if self.channel.running:
                    return
                LOG.warning('The privileged helper has ended. Starting a new '
                            'one.')
                self.stop()
            try:
                self.channel = _CHANNELS[method](context=self)
            except (daemon.FailedToDropPrivileges, OSError) as error:
                raise exceptions.HelperNotStarted(
                    command=' '.join(self.helper_command('')[:_WORDS]),
                    reason=error) from error

    def running(self) -> daemon._ClientChannel:
        """The way to a daemon that runs; to start one may take long.

        :raises HelperNotStarted: nothing was done
        """
        channel = self.channel
        while channel is None or not channel.running:
            self.start()
            channel = self.channel
        return channel

    def entrypoint(self, func: _Function) -> typing.Any:
        """Have a function carried out by the daemon."""
        return self._door(func, None)

    def entrypoint_with_timeout(self, timeout: float) -> typing.Callable[
            [_Function], _Function]:
        """The same, for callers who wait so many seconds."""
        return functools.partial(self._door, seconds=timeout)

    def _door(self, function: _Function, seconds: float | None) -> _Function:
        @functools.wraps(function)
        def call(*arguments: typing.Any, client: int | None = None,
                 **named: typing.Any) -> typing.Any:
            if self.client_mode:
                return self._ask(function, arguments, named, seconds)
            if client and not _lives(client):
                raise exceptions.NotBegun(command=function.__name__,
                                          seconds=0)
            return function(*arguments, **named)

        # The daemon knows by these what it may be asked for.
        vars(call).update(vars(super().entrypoint(function)))
        return call

    def _ask(self, function: _Function, arguments: tuple[typing.Any, ...],
             named: dict[str, typing.Any],
             seconds: float | None) -> typing.Any:
        name = function.__name__
        try:
            return self.running().remote_call(
                f'{function.__module__}.{name}', arguments,
                {**named, 'client': os.getpid()}, seconds)
        except comm.PrivsepTimeout:
            raise exceptions.CommandTimeout(
                command=name, seconds=seconds) from None
        except _Ended as error:
            raise exceptions.HelperEnded(command=name,
                                         reason=error) from error
