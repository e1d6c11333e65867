# SPDX-License-Identifier: Apache-2.0
"""What a node has, one line for each LV."""

from __future__ import annotations

import typing

from cinder_dmclone.host.dm import status
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state

_BAD = {status.Mode.RO: 'read-only', status.Mode.FAIL: 'failed'}


def lines(host: Host) -> typing.Iterator[str]:
    """Describe every LV of ours on this node, from its disks and kernel."""
    for lv, stack in sorted(inspect.collect(host).items()):
        yield f'{lv}  {describe(stack)}'


def describe(stack: state.Stack) -> str:
    """One LV in words: its role, its hydration, who uses it."""
    words = [_role(stack)]
    words += [f'snapshot {tag.snapshot} of volume {tag.volume}'
              for tag in stack.tags.snaps]
    if stack.clone and stack.clone.mode is not status.Mode.RW:
        words.append(f'ERROR: its clone is {_BAD[stack.clone.mode]}')
    if stack.clone and stack.clone.total:
        done = 100 * stack.clone.hydrated // stack.clone.total
        path = 'path up' if stack.source and stack.source.usable else 'NO PATH'
        words.append(f'hydrated {done} % ({path})')
    for name in stack.of_kind(*names.CONSUMERS):
        use = 'open' if stack.is_open(name) else 'closed'
        words.append(f'{name.kind.value} {use}')
    return ', '.join(words)


def _role(stack: state.Stack) -> str:
    tags = stack.tags
    if stack.unreadable:
        return f'UNREADABLE: {stack.unreadable}'
    if tags.lent:
        borrowers = ', '.join(str(tag.borrower) for tag in tags.lent)
        return f'lent to {borrowers}'
    if tags.copy:
        return f'copy for volume {tags.copy.volume}, not committed'
    if tags.past:
        return (f'was volume {tags.past.volume}, which went on to '
                f'{tags.past.node}/{tags.past.lv}')
    if tags.own:
        return f'volume {tags.own.volume} generation {tags.own.generation}'
    return 'no tags'
