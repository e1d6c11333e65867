# SPDX-License-Identifier: Apache-2.0
"""What a node has, for people one line for each LV, for programs JSON."""

from __future__ import annotations

import dataclasses
import datetime
import typing

from oslo_utils import units

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import status
from cinder_dmclone import names
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import roles
from cinder_dmclone.stack import state
from cinder_dmclone.world import World

# Between the two looks that tell how fast a copy arrives.
SECONDS = 1.0

_BAD = {status.Mode.RO: 'read-only', status.Mode.FAIL: 'failed'}
_BAR = 20


@dataclasses.dataclass(frozen=True)
class Hydration:
    """How much of an LV has arrived from its lender.

    :ivar copied: bytes
    :ivar size: bytes in all
    :ivar rate: bytes that arrive in a second now
    :ivar path: whether the lender can be reached
    """

    copied: int
    size: int
    rate: int
    path: bool

    @property
    def seconds_left(self) -> int | None:
        """If it goes on like this; None while nothing arrives."""
        return ((self.size - self.copied) // self.rate
                if self.rate and self.path else None)


@dataclasses.dataclass(frozen=True)
class Seen:
    """One LV of this node.

    :ivar waits: whether all I/O of its pool does
    """

    stack: state.Stack
    hydration: Hydration | None = None
    waits: bool = False

    @property
    def problem(self) -> str | None:
        """What somebody should look at; None if all is well."""
        if self.stack.unreadable:
            return role_of(self.stack)
        if self.hydration and not self.hydration.path:
            return _error(self) or _without_path(self.stack)
        return _error(self)


def look(world: World) -> list[Seen]:
    """Every LV of ours on this node, from its disks and kernel.

    Takes a second while anything hydrates: its rate is of two looks.
    """
    before = now = inspect.collect(world.host, patient=True)
    began = world.clock.monotonic()
    if any(_hydrates(stack) for stack in before.values()):
        world.clock.sleep(SECONDS)
        now = inspect.collect(world.host, patient=True)
    seconds = world.clock.monotonic() - began
    waits = _pool_waits(world)
    return [Seen(stack, _hydration(before.get(lv), stack, seconds),
                 waits and _in_pool(world, stack))
            for lv, stack in sorted(now.items())]


def _pool_waits(world: World) -> bool:
    try:
        if world.host.group.pool:
            world.host.group.require_running()
    except exceptions.PoolSuspended:
        return True
    return False


def _in_pool(world: World, stack: state.Stack) -> bool:
    return bool(stack.data and stack.data.pool == world.host.group.pool)


def _hydrates(stack: state.Stack) -> bool:
    return bool(stack.clone and stack.clone.total)


def _hydration(before: state.Stack | None, now: state.Stack,
               seconds: float) -> Hydration | None:
    if not now.clone or not now.clone.total:
        return None
    was = (before.clone.copied if before and before.clone
           else now.clone.copied)
    arrived = max(now.clone.copied - was, 0)
    return Hydration(
        copied=now.clone.copied, size=now.clone.size, path=now.has_path,
        rate=int(arrived / seconds) if seconds else 0)


# -- for people -------------------------------------------------------------

def describe(seen: Seen) -> str:
    """One LV in words: its role, its hydration, who uses it."""
    stack, hydration = seen.stack, seen.hydration
    words = [*filter(None, [role_of(stack)])]
    words += [f'snapshot {tag.snapshot} of volume {tag.volume}'
              for tag in stack.tags.snaps]
    words += filter(None, [_error(seen)])
    if hydration:
        words += _progress(stack, hydration)
    for name in stack.of_kind(*names.CONSUMERS):
        use = 'open' if stack.is_open(name) else 'closed'
        words.append(f'{name.kind.value} {use}')
    return ', '.join(words)


def role_of(stack: state.Stack) -> str:
    """What an LV is, in the words of its tags; empty if a snapshot alone."""
    tags = stack.tags
    if stack.unreadable:
        return f'UNREADABLE: {stack.unreadable}'
    if tags.erased:
        return 'is erased and deleted'
    if tags.forgotten:
        return 'forgotten, is deleted'
    lent = [f'lent to {tag.borrower}' if tag.read
            else f'{tag.borrower} takes its place' for tag in tags.lent]
    if lent and roles.role(stack) is not roles.Role.VOLUME:
        return ', '.join(lent)
    if tags.copy:
        return f'copy for volume {tags.copy.volume}, not committed'
    if tags.past:
        return (f'was volume {tags.past.volume}, which went on to '
                f'{tags.past.node}/{tags.past.lv}')
    if tags.own:
        own = f'volume {tags.own.volume} generation {tags.own.generation}'
        return ', '.join([own, *lent])
    return '' if tags.snaps else 'no tags'


def _error(seen: Seen) -> str | None:
    stack, clone = seen.stack, seen.stack.clone
    if stack.suspended:
        return 'ERROR: it is suspended'
    if stack.missing_disk:
        return f'ERROR: {stack.missing_disk}'
    if seen.waits:
        return 'ERROR: its thin pool is suspended'
    if clone and clone.mode is not status.Mode.RW:
        return f'ERROR: its clone is {_BAD[clone.mode]}'
    return None


def _without_path(stack: state.Stack) -> str:
    return 'GIVEN UP' if stack.tags.lost else 'NO PATH'


def _progress(stack: state.Stack, hydration: Hydration) -> list[str]:
    done = 100 * hydration.copied // hydration.size
    bar = ('=' * (done * _BAR // 100)).ljust(_BAR)
    path = 'path up' if hydration.path else _without_path(stack)
    lender = stack.tags.hydrates_from
    source = f' from {lender}' if lender else ''
    words = [f'hydrated [{bar}] {done} %{source} ({path})']
    if hydration.seconds_left is not None:
        left = datetime.timedelta(seconds=hydration.seconds_left)
        rate = round(hydration.rate / units.Mi, 1)
        words.append(f'{rate} MiB/s, {left} left')
    return words


# -- for programs -----------------------------------------------------------

def as_json(seen: Seen) -> dict[str, typing.Any]:
    """One LV as the page of the command has it."""
    stack, hydration = seen.stack, seen.hydration
    own = stack.tags.own
    return {
        'lv': stack.lv,
        'size': stack.data and int(stack.data.size),
        'role': roles.role(stack).value,
        'volume': stack.tags.volume,
        'generation': own and own.generation,
        'lender': _text(stack.tags.hydrates_from),
        'lent_to': [str(tag.borrower) for tag in stack.tags.lent if tag.read],
        'snapshots': [tag.snapshot for tag in stack.tags.snaps],
        'hydration': hydration and {
            **dataclasses.asdict(hydration),
            'seconds_left': hydration.seconds_left},
        'consumers': [
            {'kind': name.kind.value, 'open': stack.is_open(name)}
            for name in stack.of_kind(*names.CONSUMERS)],
        'problem': seen.problem,
    }


def _text(found: object) -> str | None:
    return None if found is None else str(found)
