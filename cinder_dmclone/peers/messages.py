# SPDX-License-Identifier: Apache-2.0
"""What a node asks another, and is answered, as values.

A class of requests says all that is to be known of its kind: what the answer
is, how long it is waited for, and what the node that answers holds meanwhile.
``service/answers.py`` has the function that answers it.
"""

from __future__ import annotations

import dataclasses
import enum
import typing

from cinder_dmclone import deadlines
from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units

TOPIC = 'cinder-dmclone'
VERSION = '1.0'

Answer = typing.TypeVar('Answer')


class Lock(enum.Enum):
    """How long the node that answers waits for the volume's lock."""

    NONE = 'it takes none: who asks may hold the lock of the same volume'
    SHORT = 'deadlines.LOCK_SECONDS'
    CALL = 'as long as a call of the driver may take'


class Request(typing.Generic[Answer]):
    """What one node asks another; subscripted with the type of the answer.

    :cvar part: of ``rpc_response_timeout``, for which an answer is waited for
    :cvar lock: of ``volume``, held while the request is answered
    :cvar home_only: only the volume's home answers, under its lock
    :cvar reads: it leaves nothing behind that anybody could find (``marks``)
    :cvar answer: the type of the answer
    """

    part: typing.ClassVar[float] = deadlines.QUERY_PART
    lock: typing.ClassVar[Lock] = Lock.NONE
    home_only: typing.ClassVar[bool] = False
    reads: typing.ClassVar[bool] = False
    answer: typing.ClassVar[type]

    # Of those that need its lock or its home.
    volume: VolumeId

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.answer, = typing.get_args(cls.__dict__['__orig_bases__'][0])

    def timeout(self, response_timeout: float) -> float:
        """Seconds after which nobody waits for the answer any more."""
        return response_timeout * self.part


AnyRequest = Request[typing.Any]


# -- questions --------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Identity:
    """Who a borrower is; ``block`` as in ``Lent``, ``thin`` what it makes."""

    pool: str
    group: GroupUuid
    block: int
    initiator: str
    thin: bool


@dataclasses.dataclass(frozen=True)
class Identify(Request[Identity]):
    """Who are you? Also one that is full answers."""

    reads = True


@dataclasses.dataclass(frozen=True)
class Room(Identity):
    """What a borrower could take in; ``lacks`` says why nothing."""

    free: units.Bytes
    lacks: str = ''


@dataclasses.dataclass(frozen=True)
class FindRoom(Request[Room]):
    """What could you take in, for a volume of ``size`` bytes?

    The room for that volume's clone metadata is taken off already.
    """

    reads = True

    size: units.Bytes


class LvState(enum.Enum):
    """What an LV is, as far as its node can tell."""

    COMPLETE = 'complete'
    HYDRATING = 'hydrating'
    COPY = 'copy'
    MISSING = 'missing'
    ERASED = 'erased'
    UNCLEAR = 'unclear'


@dataclasses.dataclass(frozen=True)
class Shown:
    """A peer's statement about one of its LVs, as of now.

    :ivar group: uuid of the node's volume group
    :ivar source: what it hydrates from; ``snapshots``: which ones it is
    """

    state: LvState
    generation: int = 0
    size: units.Bytes = units.Bytes(0)
    group: GroupUuid | None = None
    source: Location | None = None
    snapshots: list[SnapshotId] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Show(Request[Shown]):
    """What have you under this LV uuid, now?"""

    reads = True

    lv: LvUuid


@dataclasses.dataclass(frozen=True)
class Agree(Request[bool]):
    """Is a copy elsewhere not needed, as far as the volume's home knows?"""

    reads = True

    volume: VolumeId
    copy: Location


@dataclasses.dataclass(frozen=True)
class Lent:
    """What a copy may read; without ``iqn`` it is on its own node.

    :ivar size: in bytes; the LV may be larger
    :ivar block: the logical block size in bytes
    """

    lender: Location
    iqn: str
    portal: str
    size: units.Bytes
    block: int
    user: str
    password: str = dataclasses.field(repr=False)

    @property
    def tag(self) -> lv_tags.SourceTag:
        """What the copy says of it."""
        return lv_tags.SourceTag(
            self.lender.node, self.lender.lv, self.iqn, self.portal,
            self.size, self.block)

    @property
    def source(self) -> initiator.Source:
        """What the copy's node logs in to."""
        return initiator.Source(
            self.iqn, self.portal, self.lender.lv, self.size, self.block,
            self.user, self.password)


@dataclasses.dataclass(frozen=True)
class FindHoles(Request[list[int]]):
    """What of an LV that you lend was never written?

    Whoever asks has seen to it that nobody writes it from now on until the
    copy is the volume, or will never be. The answer is that of
    ``relocation.holes``.

    :ivar copy: whom it is lent to
    """

    part = deadlines.HOLES_PART
    reads = True

    lv: LvUuid
    copy: Location


# -- a relocation -----------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Prepare(Request[str]):
    """Build a copy; the answer is the path of its front.

    :ivar group: uuid that the node's volume group must have
    :ivar front: whether a server waits for a front
    :ivar gated: whether writes to it have to wait
    :ivar seconds: the node undoes the copy if it takes longer
    """

    lock = Lock.CALL

    volume: VolumeId
    generation: int
    lv: LvUuid
    lent: Lent
    group: GroupUuid
    front: bool
    gated: bool
    seconds: float

    def timeout(self, response_timeout: float) -> float:
        return self.seconds


@dataclasses.dataclass(frozen=True)
class HandOver(Request[None]):
    """Make the copy, on a node of this pool, the volume: a server writes."""

    part = deadlines.HAND_OVER_PART
    lock = Lock.SHORT

    volume: VolumeId
    copy: Location
    pool: str


@dataclasses.dataclass(frozen=True)
class Discard(Request[None]):
    """Destroy a copy of yours whose offer was withdrawn."""

    lock = Lock.SHORT

    volume: VolumeId
    lv: LvUuid


@dataclasses.dataclass(frozen=True)
class Notify(Request[None]):
    """Look at a volume soon. It may be lost, and waits in a queue for ever."""

    volume: VolumeId


# -- a birth ----------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Lend(Request[Lent]):
    """Lend what a volume is now, or its snapshot, to a copy.

    :ivar volume: the source
    :ivar snapshot: its id, or empty
    :ivar borrower: the new volume, or the one that goes back to its snapshot
    :ivar copy: the LV that its row offers
    :ivar group: uuid of the volume group that has it
    """

    part = deadlines.CALL_PART
    lock = Lock.CALL

    volume: VolumeId
    snapshot: SnapshotId
    borrower: VolumeId
    generation: int
    copy: Location
    group: GroupUuid
    initiator: str


# -- for an operator ---------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Plan:
    """What a node is about to do for an operator, or has done.

    :ivar does: in one line
    :ivar gives_up: what is lost by it, in some lines
    :ivar record: what this rests upon
    """

    does: str
    gives_up: list[str]
    record: str

    def agreed(self, record: str,
               refusal: typing.Callable[[str], Exception]) -> bool:
        """Whether an operator has agreed to this very plan.

        :param record: of the plan that he was told; empty if he was told none
        :param refusal: makes an error of a reason; raised if it was another
        """
        if record and record != self.record:
            raise refusal('it is not as it was when that was agreed to')
        return bool(record)


@dataclasses.dataclass(frozen=True)
class TakeBack(Request[Plan]):
    """Be the volume again that went from you to a node that is lost.

    :ivar record: of the plan that an operator has agreed to: nothing is done
        if it is another one by now; empty to be told a plan
    """

    part = deadlines.CALL_PART
    lock = Lock.SHORT

    volume: VolumeId
    record: str


@dataclasses.dataclass(frozen=True)
class GiveUp(Request[Plan]):
    """Let reads of what has not arrived fail: your lender is lost.

    :ivar record: as in ``TakeBack``
    """

    part = 1.0
    home_only = True

    volume: VolumeId
    record: str


@dataclasses.dataclass(frozen=True)
class Forget(Request[Plan]):
    """Delete an LV that you report and keep, for nobody misses it.

    It takes the lock of the volume that the LV is of.

    :ivar record: as in ``TakeBack``
    """

    part = deadlines.CALL_PART

    lv: LvUuid
    record: str


@dataclasses.dataclass(frozen=True)
class Release(Request[Plan]):
    """Lend an LV of yours no more to nodes that are lost.

    It takes the lock of the volume that the LV is of.

    :ivar record: as in ``TakeBack``
    """

    part = 1.0

    lv: LvUuid
    record: str


@dataclasses.dataclass(frozen=True)
class Undo(Request[Plan]):
    """Take back that an LV of yours was forgotten, or its lender given up.

    It takes the lock of the volume that the LV is of.

    :ivar kind: of the tag that says so
    :ivar record: as in ``TakeBack``
    """

    part = 1.0

    lv: LvUuid
    kind: str
    record: str


@dataclasses.dataclass(frozen=True)
class Leave(Request[NodeName]):
    """Move a volume that nobody uses to another node; which that is."""

    part = 1.0
    home_only = True

    volume: VolumeId


# -- for the volume's home --------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Connect(Request[dict[str, typing.Any]]):
    """Serve a connector; the answer is Cinder's connection info."""

    part = 1.0
    home_only = True

    volume: VolumeId
    connector: dict[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class Extend(Request[None]):
    """Make the volume as large as that; as ``TakeSnapshot`` it may wait."""

    part = 1.0

    volume: VolumeId
    gib: int


@dataclasses.dataclass(frozen=True)
class Disconnect(Request[bool]):
    """End a connection, or all; the answer: whether others still use it."""

    part = 1.0
    home_only = True

    volume: VolumeId
    connector: dict[str, typing.Any] | None
