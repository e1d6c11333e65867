# SPDX-License-Identifier: Apache-2.0
"""What is written down about a volume: the row's field and the LVs' tags.

The ``volumes`` row is the only authority on who owns a volume. Its
``provider_id`` reads ``<generation>[;from=<node>/<lv>][;offer=<node>/<lv>]``;
every commit adds one to the generation. Tags on LVs repeat enough of it to
start a node without the database, and may only be more cautious than the
row. '@' is illegal in a tag, so a node ``host@backend`` is written
``host#backend`` there.
"""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone import exceptions

# provider_id is a varchar(255).
PROVIDER_ID_MAX = 255

_TAG_PREFIX = 'dmclone.'


@dataclasses.dataclass(frozen=True)
class Location:
    """An LV on a node: ``node`` is ``host@backend``, ``lv`` the LV's uuid."""

    node: str
    lv: str

    def __str__(self) -> str:
        return f'{self.node}/{self.lv}'

    @classmethod
    def parse(cls, text: str) -> Location:
        node, slash, lv = text.rpartition('/')
        if not (node and slash and lv):
            raise exceptions.BadRecord(record=text, reason='not NODE/LV')
        return cls(node, lv)


@dataclasses.dataclass(frozen=True)
class ProviderId:
    """The driver's part of a row.

    ``source`` is where the volume hydrates from, ``offer`` the copy that is
    being prepared for a relocation.
    """

    generation: int
    source: Location | None = None
    offer: Location | None = None

    def __str__(self) -> str:
        text = str(self.generation)
        if self.source:
            text += f';from={self.source}'
        if self.offer:
            text += f';offer={self.offer}'
        if len(text) > PROVIDER_ID_MAX:
            raise exceptions.BadRecord(
                record=text, reason='longer than 255 characters; use '
                'shorter host or backend names')
        return text

    @classmethod
    def parse(cls, text: str | None) -> ProviderId:
        """Read ``provider_id``; an empty one is generation 0."""
        if not text:
            return cls(0)
        head, *fields = text.split(';')
        found: dict[str, Location] = {}
        for field in fields:
            key, _, value = field.partition('=')
            if key not in ('from', 'offer') or key in found:
                raise exceptions.BadRecord(record=text, reason=f'{field!r}')
            found[key] = Location.parse(value)
        if not head.isdecimal():
            raise exceptions.BadRecord(record=text, reason='no generation')
        return cls(int(head), found.get('from'), found.get('offer'))


@dataclasses.dataclass(frozen=True)
class Own:
    """This LV is the volume. Written only after the commit."""

    kind: typing.ClassVar[str] = 'own'
    generation: int
    volume: str


@dataclasses.dataclass(frozen=True)
class Copy:
    """This LV is being prepared to become the volume at ``generation``."""

    kind: typing.ClassVar[str] = 'copy'
    generation: int
    volume: str


@dataclasses.dataclass(frozen=True)
class From:
    """Where this LV hydrates from; removed when it is complete.

    ``size`` is the source's size in bytes (the LV may have been extended
    since), ``block`` the logical block size in bytes.
    """

    kind: typing.ClassVar[str] = 'from'
    node: str
    lv: str
    iqn: str
    portal: str
    size: int
    block: int


@dataclasses.dataclass(frozen=True)
class Lent:
    """This LV is the source of ``lv`` on ``node``: never to be written.

    ``group`` is the uuid of the borrower's volume group: a node that was
    installed anew under its old name is another borrower.
    """

    kind: typing.ClassVar[str] = 'lent'
    generation: int
    volume: str
    node: str
    lv: str
    group: str
    initiator: str

    @property
    def borrower(self) -> Location:
        return Location(self.node, self.lv)


@dataclasses.dataclass(frozen=True)
class Meta:
    """Clone metadata of data LV ``lv``; ``ready`` once it was formatted.

    ``iqn`` is the source's target: it is still needed for the logout when
    the data LV no longer says where it came from.
    """

    kind: typing.ClassVar[str] = 'meta'
    lv: str
    ready: int
    iqn: str


Tag = Own | Copy | From | Lent | Meta
_KINDS: dict[str, type[Tag]] = {
    cls.kind: cls for cls in typing.get_args(Tag)}


def print_tag(tag: Tag) -> str:
    """A tag as LVM stores it: ``dmclone.<kind>/<field>/<field>...``."""
    values = [str(getattr(tag, field.name))
              for field in dataclasses.fields(tag)]
    text = '/'.join([_TAG_PREFIX + tag.kind, *values])
    return text.replace('@', '#').replace('[', '=').replace(']', '=')


def parse_tag(text: str) -> Tag | None:
    """Read one LVM tag; None if it is not one of ours.

    :raises BadRecord: if it is ours but makes no sense
    """
    if not text.startswith(_TAG_PREFIX):
        return None
    kind, *values = text[len(_TAG_PREFIX):].split('/')
    cls = _KINDS.get(kind)
    fields = dataclasses.fields(cls) if cls else ()
    if cls is None or len(fields) != len(values):
        raise exceptions.BadRecord(record=text, reason='unknown tag')
    try:
        return cls(*(_value(field, value)
                     for field, value in zip(fields, values, strict=True)))
    except ValueError as error:
        raise exceptions.BadRecord(record=text, reason=error) from error


def _value(field: dataclasses.Field, text: str) -> int | str:
    if field.type == 'int':
        return int(text)
    if field.name == 'portal' and text.startswith('='):
        # An IPv6 portal's brackets are illegal in a tag.
        return '[' + text[1:].replace('=', ']', 1)
    return text.replace('#', '@') if field.name == 'node' else text


@dataclasses.dataclass(frozen=True)
class Tags:
    """The tags of one LV, sorted by meaning."""

    own: Own | None = None
    copy: Copy | None = None
    source: From | None = None
    lent: tuple[Lent, ...] = ()
    meta: Meta | None = None

    @classmethod
    def parse(cls, texts: typing.Iterable[str]) -> Tags:
        """Sort an LV's tags.

        :raises BadRecord: if a kind that may be there once is there twice
        """
        single: dict[str, Tag] = {}
        lent: list[Lent] = []
        for text in sorted(texts):
            tag = parse_tag(text)
            if isinstance(tag, Lent):
                lent.append(tag)
            elif tag and tag.kind in single:
                raise exceptions.BadRecord(record=text, reason='second of '
                                           'its kind on one LV')
            elif tag:
                single[tag.kind] = tag
        return cls(own=single.get('own'), copy=single.get('copy'),
                   source=single.get('from'), lent=tuple(lent),
                   meta=single.get('meta'))

    @property
    def generation(self) -> int:
        """The highest generation at which this LV was known committed.

        A copy and a loan name the generation they lead to, which is only
        reached with the commit.
        """
        generations = [tag.generation - 1 for tag in self.lent]
        if self.copy:
            generations.append(self.copy.generation - 1)
        if self.own:
            generations.append(self.own.generation)
        return max(generations, default=0)

    @property
    def hydrates_from(self) -> Location | None:
        """The copy that this LV still needs."""
        return self.source and Location(self.source.node, self.source.lv)

    @property
    def volumes(self) -> tuple[str, ...]:
        """The volume ids these tags speak of, the latest first.

        Cinder's generic migration exchanges the ids of two rows: what was
        written down for a loan is of a later time than what was for the LV.
        """
        lent = sorted(self.lent, key=lambda tag: -tag.generation)
        return tuple(dict.fromkeys(
            tag.volume for tag in (*lent, self.copy, self.own) if tag))

    @property
    def volume(self) -> str | None:
        """The volume id these tags speak of."""
        return next(iter(self.volumes), None)
