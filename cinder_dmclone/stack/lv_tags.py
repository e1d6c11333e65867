# SPDX-License-Identifier: Apache-2.0
"""What the LVs of this node say of themselves.

Tags repeat enough of the rows to start a node without the database, and may
only be more cautious than they. A tag reads
``dmclone.<format>.<kind>/<field>/<field>...``; a node ``host@backend`` is
written ``host#backend`` there, and what else LVM takes for no part of a tag
as ``&`` and two hexadecimal digits.
"""

from __future__ import annotations

import dataclasses
import re
import typing

from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.units import Bytes

_OURS = 'dmclone.'
_FORMAT = '1'


@dataclasses.dataclass(frozen=True)
class OwnTag:
    """This LV is the volume. Written only after the commit."""

    kind: typing.ClassVar[str] = 'own'
    generation: int
    volume: VolumeId


@dataclasses.dataclass(frozen=True)
class CopyTag:
    """This LV is being prepared to become the volume at ``generation``."""

    kind: typing.ClassVar[str] = 'copy'
    generation: int
    volume: VolumeId


@dataclasses.dataclass(frozen=True)
class SourceTag:
    """Where this LV hydrates from; removed when it is complete.

    ``size`` is the source's (the LV may have been extended since), ``block``
    the logical block size in bytes. Without ``iqn`` and ``portal`` the source
    is on this node.
    """

    kind: typing.ClassVar[str] = 'from'
    node: NodeName
    lv: LvUuid
    iqn: str
    portal: str
    size: Bytes
    block: int

    @property
    def local(self) -> bool:
        """Whether the source is on this node: it needs no target."""
        return not self.iqn


@dataclasses.dataclass(frozen=True)
class LostTag:
    """The source of this LV is lost: reads of what has not arrived fail.

    An operator has decided it, for the volume at this generation.
    """

    kind: typing.ClassVar[str] = 'lost'
    generation: int
    volume: VolumeId


@dataclasses.dataclass(frozen=True)
class ForgottenTag:
    """Nobody misses this LV, says an operator: it is to be deleted.

    ``volume`` is the one that it was of then.
    """

    kind: typing.ClassVar[str] = 'forgotten'
    volume: VolumeId


@dataclasses.dataclass(frozen=True)
class ErasedTag:
    """What this LV held is overwritten, or will be: it is to be deleted.

    Nobody may take it for what its other tags say: how much of that is left is
    not known. ``volume`` is the one that it was of.
    """

    kind: typing.ClassVar[str] = 'erased'
    volume: VolumeId


@dataclasses.dataclass(frozen=True)
class LoanTag:
    """This LV is the source of ``lv`` on ``node``: never to be written.

    ``volume`` and ``generation`` are what that LV becomes: the volume that
    this one is, too, if it moves, and another one otherwise; or a snapshot
    that moves, whose id ``volume`` is then. ``group`` is the
    uuid of the borrower's volume group: a node that was
    installed anew under its old name is another borrower. Without
    ``initiator`` the borrower is on this node. It reads the first ``size``
    bytes: the LV may be extended. If that is nothing, the borrower only takes
    this one's place, when it is complete: the volume goes back to a snapshot.
    """

    kind: typing.ClassVar[str] = 'lent'
    generation: int
    volume: VolumeId
    node: NodeName
    lv: LvUuid
    group: GroupUuid
    initiator: str
    size: Bytes

    @property
    def borrower(self) -> Location:
        """The LV that it is lent to."""
        return Location(self.node, self.lv)

    @property
    def local(self) -> bool:
        """Whether the borrower is on this node: it needs no export."""
        return not self.initiator

    @property
    def read(self) -> bool:
        """Whether the borrower reads this LV."""
        return self.size > 0


@dataclasses.dataclass(frozen=True)
class PastTag:
    """The volume has gone on: it was ``lv`` on ``node`` at ``generation``.

    Takes the place of a loan to the volume itself that has ended, while this
    LV stays for others.
    """

    kind: typing.ClassVar[str] = 'past'
    generation: int
    volume: VolumeId
    node: NodeName
    lv: LvUuid


@dataclasses.dataclass(frozen=True)
class FrontTag:
    """Those who use the volume here know it by the names of ``lv``.

    A server is told a path once. It keeps it when the volume goes on in
    another LV of its node.
    """

    kind: typing.ClassVar[str] = 'front'
    lv: LvUuid


@dataclasses.dataclass(frozen=True)
class SnapTag:
    """What this LV shows is a snapshot of a volume: never to be written.

    It counts only if the snapshot's row says that it is this LV, or is to be.
    ``size`` is that of the snapshot: the LV may have been extended since.

    An LV with nothing but this never was the volume: it was made for the
    snapshot, or that has moved there. The tag goes with it.
    """

    kind: typing.ClassVar[str] = 'snap'
    generation: int
    snapshot: SnapshotId
    volume: VolumeId
    size: Bytes


@dataclasses.dataclass(frozen=True)
class MetadataTag:
    """Clone metadata of data LV ``lv``; ``ready`` once it was formatted.

    ``iqn`` is the source's target: it is still needed for the logout when
    the data LV no longer says where it came from. ``volume`` tells whose it
    was when the data LV is gone.
    """

    kind: typing.ClassVar[str] = 'meta'
    volume: VolumeId
    lv: LvUuid
    ready: int
    iqn: str


Tag = (OwnTag | CopyTag | SourceTag | LostTag | ForgottenTag | ErasedTag
       | LoanTag | PastTag | FrontTag | SnapTag | MetadataTag)
_KINDS: dict[str, type[Tag]] = {
    cls.kind: cls for cls in typing.get_args(Tag)}
_NUMBERS: dict[str, typing.Callable[[str], int]] = {
    'generation': int, 'ready': int, 'block': int,
    'size': lambda text: Bytes(int(text))}


def ours(texts: typing.Iterable[str]) -> list[str]:
    """Of an LV's tags those that this driver wrote, of whatever release."""
    return sorted(text for text in texts if text.startswith(_OURS))


def print_tag(tag: Tag) -> str:
    """A tag as LVM stores it."""
    values = [_quote(str(getattr(tag, field.name)))
              for field in dataclasses.fields(tag)]
    return '/'.join([f'{_OURS}{_FORMAT}.{tag.kind}', *values])


def parse_tag(text: str) -> Tag | None:
    """Read one LVM tag; None if it is not one of ours.

    :raises CorruptRecord: if it is ours but makes no sense
    :raises LaterFormat: if another release of this driver wrote it
    """
    if not text.startswith(_OURS):
        return None
    head, *values = text.removeprefix(_OURS).split('/')
    format_, _, kind = head.partition('.')
    if format_.isdecimal() and format_ != _FORMAT:
        raise exceptions.LaterFormat(record=text, format=format_)
    cls = _KINDS.get(kind)
    fields = dataclasses.fields(cls) if cls else ()
    if cls is None or format_ != _FORMAT or len(fields) != len(values):
        raise exceptions.CorruptRecord(record=text, reason='unknown tag')
    try:
        found: dict[str, typing.Any] = {
            field.name: _NUMBERS.get(field.name, str)(_unquote(value))
            for field, value in zip(fields, values, strict=True)}
    except ValueError as error:
        raise exceptions.CorruptRecord(record=text, reason=error) from error
    return cls(**found)


def _quote(text: str) -> str:
    quoted = re.sub(r'[^A-Za-z0-9_+.!:@-]',
                    lambda found: f'&{ord(found[0]):02x}', text)
    return quoted.replace('@', '#')


def _unquote(text: str) -> str:
    return re.sub(r'&([0-9a-f]{2})', lambda found: chr(int(found[1], 16)),
                  text.replace('#', '@'))


@dataclasses.dataclass(frozen=True)
class Tags:
    """The tags of one LV, sorted by meaning."""

    own: OwnTag | None = None
    copy: CopyTag | None = None
    source: SourceTag | None = None
    lost: LostTag | None = None
    forgotten: ForgottenTag | None = None
    erased: ErasedTag | None = None
    lent: tuple[LoanTag, ...] = ()
    past: PastTag | None = None
    front: FrontTag | None = None
    snaps: tuple[SnapTag, ...] = ()
    meta: MetadataTag | None = None

    @classmethod
    def parse(cls, texts: typing.Iterable[str]) -> Tags:
        """Sort an LV's tags.

        :raises CorruptRecord: if one makes no sense, or if a kind that may be
            there once is there twice
        """
        single: dict[str, typing.Any] = {}
        lent: list[LoanTag] = []
        snaps: list[SnapTag] = []
        for text in sorted(texts):
            tag = parse_tag(text)
            if isinstance(tag, LoanTag):
                lent.append(tag)
            elif isinstance(tag, SnapTag):
                snaps.append(tag)
            elif tag and tag.kind in single:
                raise exceptions.CorruptRecord(
                    record=text, reason='second of its kind on one LV')
            elif tag:
                single[tag.kind] = tag
        return cls(own=single.get('own'), copy=single.get('copy'),
                   source=single.get('from'), lost=single.get('lost'),
                   forgotten=single.get('forgotten'),
                   erased=single.get('erased'), lent=tuple(lent),
                   past=single.get('past'), front=single.get('front'),
                   snaps=tuple(snaps),
                   meta=single.get('meta'))

    @property
    def generation(self) -> int:
        """The highest generation at which this LV was known committed.

        A copy and a loan name the generation they lead to, which is only
        reached with the commit. A loan to another volume has that one's.
        """
        generations = [tag.generation - 1 for tag in self.lent
                       if tag.volume == self.volume]
        if self.copy:
            generations.append(self.copy.generation - 1)
        if self.own:
            generations.append(self.own.generation)
        if self.past and self.past.volume == self.volume:
            generations.append(self.past.generation)
        return max(generations, default=0)

    @property
    def hydrates_from(self) -> Location | None:
        """The copy that this LV still needs."""
        return (Location(self.source.node, self.source.lv) if self.source
                else None)

    @property
    def volume(self) -> VolumeId | None:
        """The volume that this LV is, was or may become.

        A loan does not tell: it has the borrower's.
        """
        return next((tag.volume for tag in (
            self.own, self.copy, *self.snaps, self.past) if tag), None)

    @property
    def only_snapshot(self) -> bool:
        """Whether it is, or is to be, a snapshot and was never anything else.
        """
        return bool(self.snaps) and not (self.own or self.copy)

    @property
    def bars_front(self) -> bool:
        """Whether no server may write it, whatever else it is.

        The last tag that says so goes with an LV that is not the volume:
        without the database it would be taken for it.
        """
        return bool(self.lent or self.snaps or self.past)
