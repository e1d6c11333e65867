# SPDX-License-Identifier: Apache-2.0
"""Where a test gets between a process and its world."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import threading
import typing

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import client
from cinder_dmclone.peers import messages
from cinder_dmclone.ports import Host
from cinder_dmclone.world import World
from oslo_messaging._drivers import common as messaging_common
from oslo_serialization import jsonutils

if typing.TYPE_CHECKING:
    from tests.unit.fake import cloud

# The product's class of each port.
CLASSES = typing.get_type_hints(Host) | typing.get_type_hints(World)


class Killed(BaseException):
    """The process is no more; only its creator may catch this."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a port by a process."""

    node: str
    port: str
    method: str
    arguments: tuple[typing.Any, ...] = ()

    @classmethod
    def of(cls, node: str, port: str, method: str,
           arguments: tuple[typing.Any, ...]) -> Call:
        """What is asked of another node counts as a method of its own."""
        request = _request(arguments)
        return cls(node, port, type(request).__name__ if request else method,
                   arguments)

    @property
    def reads(self) -> bool:
        what = _request(self.arguments) or getattr(
            CLASSES[self.port], self.method, None)
        return getattr(what, 'reads', False)

    def __str__(self) -> str:
        return f'{self.node}: {self.port}.{self.method}'


def _request(arguments: tuple[typing.Any, ...]
             ) -> messages.Request[typing.Any] | None:
    """What is asked; of several nodes it is the same kind of request."""
    flat = (found for argument in arguments
            for each in (argument.values() if isinstance(argument, dict)
                         else [argument])
            for found in (each if isinstance(each, list) else [each]))
    return next((found for found in flat
                 if isinstance(found, messages.Request)), None)


class Port:
    """A port as one process sees it: every call is shown to the cloud."""

    def __init__(self, process: cloud.Process, name: str,
                 target: typing.Any) -> None:
        self._process = process
        self._name = name
        self._target = target

    def __call__(self, *arguments: typing.Any) -> typing.Any:
        return self._process.call(self._name, 'call', self._target,
                                  arguments, {})

    def __getattr__(self, method: str) -> typing.Any:
        found = getattr(self._target, method)
        if not callable(found):
            return found

        def call(*arguments: typing.Any, **named: typing.Any) -> typing.Any:
            return self._process.call(self._name, method, found, arguments,
                                      named)
        return call


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Locks:
    """One lock per volume; a process that dies lets go of its locks."""

    def __init__(self, node: str, wait: float) -> None:
        self._node = node
        self._wait = wait
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def volume(self, volume_id: str, seconds: float) -> typing.Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(volume_id, threading.Lock())
        if not lock.acquire(timeout=self._wait):
            raise exceptions.VolumeLocked(volume=volume_id, node=self._node,
                                          seconds=seconds)
        try:
            yield
        finally:
            lock.release()

    def room(self) -> typing.ContextManager[None]:
        return self.volume('room', deadlines.TURN_SECONDS)


class Fate(enum.Enum):
    """What becomes of a message."""

    ARRIVES = 'it arrives and is answered'
    LOST = 'nobody gets it'
    UNANSWERED = 'it is carried out, the answer is lost'
    LATE = 'its caller gives up; it is carried out later'
    TWICE = 'it is carried out twice'
    ASTRAY = 'another node of the same name gets it'


@dataclasses.dataclass
class Message:
    """A message between nodes."""

    source: str
    target: str
    request: str
    fields: dict[str, typing.Any]


class Client:
    """The part of ``oslo_messaging.RPCClient`` that ``Peers`` uses."""

    def __init__(self, process: cloud.Process, server: str = '',
                 timeout: float = 60.0) -> None:
        self._process = process
        self._server = server
        self._timeout = timeout

    def prepare(self, server: str, timeout: float = 60.0,
                **options: typing.Any) -> Client:
        return Client(self._process, server, timeout)

    def call(self, context: typing.Any, method: str,
             **arguments: typing.Any) -> typing.Any:
        return self._process.node.cloud.carry(
            self._process, self._message(**arguments), self._timeout).open()

    def cast(self, context: typing.Any, method: str,
             **arguments: typing.Any) -> None:
        self._process.node.cloud.post(self._message(**arguments))

    def _message(self, request: str,
                 fields: dict[str, typing.Any]) -> Message:
        return Message(self._process.node.name, self._server, request,
                       jsonutils.loads(jsonutils.dumps(fields)))


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came back over the wire: a value, or an error's text."""

    value: str = 'null'
    failure: str | None = None

    @classmethod
    def of(cls, call: typing.Callable[[], typing.Any]) -> Answer:
        try:
            return cls(jsonutils.dumps(call()))
        except Exception as error:
            return cls(failure=messaging_common.serialize_remote_exception(
                (type(error), error, error.__traceback__)))

    def open(self) -> typing.Any:
        if self.failure is not None:
            raise messaging_common.deserialize_remote_exception(
                self.failure, ['cinder.exception'])
        return jsonutils.loads(self.value)


class Peers(client.Peers):
    """The real client on top of the cloud's messages."""

    def __init__(self, process: cloud.Process, backend: str) -> None:
        super().__init__(backend)
        self.__dict__['_client'] = Client(process)

    def _each(self, ask: typing.Callable[[NodeName], typing.Any],
              nodes: typing.Sequence[NodeName]) -> list[typing.Any]:
        return in_turn(ask, nodes)


def in_turn(function: typing.Callable[[typing.Any], typing.Any],
            each: typing.Iterable[typing.Any]) -> list[typing.Any]:
    """One after the other: a process has no threads that nobody made."""
    return [function(one) for one in each]
