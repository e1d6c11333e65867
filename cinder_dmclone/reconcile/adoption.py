# SPDX-License-Identifier: Apache-2.0
"""When an LV may be made the volume by an operator, whatever the row says.

The database is older than the disks, or calls this node by another name. The
tags of the LV say what the row has to say. Nobody may work on the volume
meanwhile, on any node: whoever calls this sees to that.
"""

from __future__ import annotations

from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone import units


def why_not(facts: Facts, mistaken: bool = False) -> str:
    """Why an LV is not made the volume; empty if it may be.

    :param mistaken: whether the node that the row names works, and has no
        such LV: that is no former name of this one
    """
    stack, row = facts.stack, facts.row
    own = stack.tags.own
    if stack.data is None:
        return 'there is no such LV'
    if stack.unreadable:
        return stack.unreadable
    if stack.tags.erased:
        return ('its deletion had begun, and what it held may be overwritten '
                'in part')
    if facts.rivals:
        return 'several volumes claim it'
    if own is None or stack.tags.copy or stack.tags.forgotten:
        return 'its tags do not say that it was ever a volume'
    if stack.tags.past and stack.tags.past.generation > own.generation and (
            stack.tags.past.volume == own.volume):
        return f'the volume has gone on from it, to {stack.tags.past.node}'
    if row is None or row.id != own.volume:
        return f'the database knows nothing of volume {own.volume}'
    if row.deleted:
        return f'volume {row.id} was deleted'
    if row.unreadable:
        return row.unreadable
    if facts.foreign(row):
        return f'volume {row.id} is one of another backend, {row.node}'
    if facts.home:
        return f'it is volume {row.id}, as the row says'
    if stack.data.size < units.Bytes.from_gib(row.size):
        return f'it is smaller than the volume, which has {row.size} GiB'
    if own.generation < row.generation:
        return (f'it has generation {own.generation} of the volume, the row '
                f'{row.generation}')
    if own.generation == row.generation:
        return _why_not_renamed(facts, mistaken)
    return ''


def _why_not_renamed(facts: Facts, mistaken: bool) -> str:
    """Likewise, of one that differs from what the row names by its node."""
    row, tags = facts.row, facts.stack.tags
    assert row is not None
    if row.lv != facts.stack.lv:
        return (f'the row names another LV of the same generation, '
                f'{row.owner}')
    if row.offer or not mistaken and (
            row.source or tags.source or tags.lent or tags.snaps):
        # Others know it by the former name, and it them.
        return (f'others know it as one of {row.node}: it hydrates, or others '
                'need it. Give the node that name until that has ended')
    return ''


def renamed(facts: Facts) -> bool:
    """Whether the row differs from what an LV says by its node only."""
    row, own = facts.row, facts.stack.tags.own
    return bool(row and own and not row.unreadable and not facts.home
                and own.generation == row.generation
                and row.lv == facts.stack.lv)


def record(facts: Facts) -> ProviderId:
    """What the row has to say of an LV that may be the volume."""
    own, row = facts.stack.tags.own, facts.row
    if own is None:
        raise exceptions.CorruptRecord(record=facts.stack.lv,
                                       reason='it has no tag')
    return ProviderId(own.generation, facts.stack.tags.hydrates_from,
                      lost=row.lost if row else ())


def concerned(facts: Facts, mistaken: bool = False) -> set[NodeName]:
    """The other nodes that may take what they have for the volume.

    :param mistaken: see ``why_not``; what is older than the row's generation
        no node takes for it
    """
    row = facts.row
    assert row is not None
    places = () if mistaken else row.places
    lent = {tag.node for tag in facts.stack.tags.lent
            if tag.volume == row.id}
    return ({place.node for place in places} | lent) - {facts.node}


def given_up(facts: Facts) -> list[str]:
    """What is lost by it, a line each."""
    row, own = facts.row, facts.stack.tags.own
    assert row is not None and own is not None
    lines = []
    if own.generation > row.generation:
        lines.append(f'what was written to {row.owner} since the database '
                     f'says that it is the volume (generation '
                     f'{row.generation})')
    return lines + [
        f'what {tag.borrower} may have of the volume that is newer: if its '
        f'node says that it is the volume, adopt that'
        for tag in facts.stack.tags.lent if tag.volume == row.id]
