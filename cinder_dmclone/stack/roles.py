# SPDX-License-Identifier: Apache-2.0
"""What an LV is, in one word for programs."""

from __future__ import annotations

import enum

from cinder_dmclone.stack.state import Stack


class Role(enum.Enum):
    """The words of ``status --json`` and of the metrics."""

    VOLUME = 'volume'
    COPY = 'copy'
    LENT = 'lent'
    PAST = 'past'
    SNAPSHOT = 'snapshot'
    UNREADABLE = 'unreadable'
    UNKNOWN = 'unknown'


def role(stack: Stack) -> Role:
    """What an LV is, as its tags have it."""
    tags = stack.tags
    if stack.unreadable:
        return Role.UNREADABLE
    if tags.copy:
        return Role.COPY
    if tags.past:
        return Role.PAST
    if tags.only_snapshot:
        return Role.SNAPSHOT
    if tags.own and any(tag.volume == tags.own.volume for tag in tags.lent):
        return Role.LENT
    return Role.VOLUME if tags.own else Role.UNKNOWN
