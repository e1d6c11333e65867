# SPDX-License-Identifier: Apache-2.0
"""The lender: marks its LV lent, exports it, and leaves no writer on it."""

from __future__ import annotations

import typing

from cinder_dmclone.database import rows
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone.stack import tagging
from cinder_dmclone.stack import write_gate
from cinder_dmclone import units
from cinder_dmclone.world import World

Found = typing.TypeVar('Found')


def lend(world: World, lv: LvUuid, tag: lv_tags.LoanTag,
         *others: lv_tags.Tag) -> messages.Lent:
    """Let a borrower read an LV that nobody writes from now on; idempotent.

    :param others: what else the LV says of itself from now on
    :returns: what the borrower has to know
    """
    host, settings = world.host, world.settings
    tagging.write(host, lv, add=[tag, *others])
    stack = inspect.refresh(host, lv)
    exports.export_loan(host, stack, tag)
    iqn = '' if tag.local else exports.loan_iqn(host, stack, tag)
    user, password = settings.credentials(iqn) if iqn else ('', '')
    return messages.Lent(
        lender=Location(settings.node, lv), iqn=iqn,
        portal='' if tag.local else settings.portal, size=tag.size,
        block=host.group.report().block_size, user=user, password=password)


def mark_replaced(world: World, row: rows.Row) -> None:
    """Write down durably that the offered copy takes the volume's place.

    It reads nothing of what the volume was until then.
    """
    copy = row.offer
    assert copy is not None
    tagging.write(world.host, row.lv, add=[lv_tags.LoanTag(
        row.generation + 1, row.id, copy.node, copy.lv,
        world.host.group.report().uuid, '', units.Bytes(0))])


def revoke_loan(world: World, stack: state.Stack, tag: lv_tags.LoanTag,
                instead: lv_tags.PastTag | None = None) -> None:
    """Forget a loan that has ended, or that never came to be.

    :param instead: what takes its place
    """
    close_loan(world, stack, tag)
    old = stack.tags.past if instead else None
    tagging.write(world.host, stack.lv, add=[instead],
                  remove=[gone for gone in (tag, old) if gone != instead])


def close_loan(world: World, stack: state.Stack,
               tag: lv_tags.LoanTag) -> None:
    """Let a borrower read no more; the LV still says that it is lent."""
    if not tag.local:
        world.host.targets.remove(exports.loan_iqn(world.host, stack, tag))
    world.host.dm.remove(str(names.loan(stack.lv, tag.lv)))


def check_sealable(world: World, row: rows.Row, purpose: rows.Purpose,
                   peer: NodeName) -> state.Stack:
    """Whether no writer has the volume open here, but a front to be gated.

    :param peer: where the volume would move
    :raises CannotRelocate, CannotRevert: if one has
    """
    def look() -> tuple[state.Stack, list[names.DeviceName]]:
        stack = inspect.refresh(world.host, row.lv)
        return stack, [
            name for name in stack.of_kind(*names.WRITERS)
            if stack.is_held(name)
            and not (purpose.gated and name.kind is names.Kind.FRONT)]

    stack, held = _patiently(world, look, lambda found: not found[1])
    if held:
        raise purpose.refusal(row, peer, f'{held[0]} is in use')
    return stack


def require_openers(world: World, row: rows.Row, stack: state.Stack) -> None:
    """See that nobody has a volume open but by its consumers.

    :raises CannotCut: if somebody has
    """
    known = len(stack.of_kind(*names.CONSUMERS))
    openers = _patiently(
        world, lambda: consumers.openers(world.host, stack),
        lambda count: count == known)
    if openers != known:
        raise exceptions.CannotCut(
            volume=row.id, node=world.settings.node,
            reason=f'it is open {openers} times instead of {known}')


def seal(world: World, row: rows.Row, purpose: rows.Purpose,
         peer: NodeName) -> None:
    """Leave no writer on the volume, then make durable what was written.

    The fence is observed: the kernel's open count of what the consumers lead
    to must equal our read-only loans and views, the sluice and the gated
    fronts.
    Flushing is needed because flushes on the borrower reach only its disk.

    :param peer: where the volume would move
    :raises CannotRelocate, CannotRevert: if somebody else has it open, or its
        disk fails
    """
    stack = check_sealable(world, row, purpose, peer)
    if purpose.gated and stack.of_kind(names.Kind.FRONT):
        stack = write_gate.prepare(world.host, stack)
    allowed = len(stack.of_kind(*names.READERS, names.Kind.SLUICE))
    for name in stack.of_kind(*names.WRITERS):
        if stack.is_held(name):
            write_gate.close_gate(world.host, stack, name)
            allowed += 1
        else:
            consumers.drop(world.host, stack, name)
    openers = _patiently(
        world, lambda: consumers.openers(world.host, stack),
        lambda count: count == allowed)
    if openers != allowed:
        raise purpose.refusal(
            row, peer, f'it is open {openers} times instead of {allowed}')
    try:
        consumers.flush(world.host, stack)
    except exceptions.CommandFailed as error:
        raise purpose.refusal(
            row, peer, f'its disk does not make durable what was written '
            f'({error.msg}). See the messages of the kernel there'
        ) from error


def _patiently(world: World, look: typing.Callable[[], Found],
               fine: typing.Callable[[Found], bool]) -> Found:
    """What is found when it is fine, or at last.

    Whoever looks at all block devices of a node (lsblk, blkid, monitoring)
    opens ours, too, for a moment.
    """
    deadline = world.clock.monotonic() + deadlines.OPENER_SECONDS
    while True:
        found = look()
        if fine(found) or world.clock.monotonic() >= deadline:
            return found
        world.clock.sleep(deadlines.OPENER_SECONDS / 5)
