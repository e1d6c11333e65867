# SPDX-License-Identifier: Apache-2.0
"""Taking a volume's devices apart, also with its lender away."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import tagging
from cinder_dmclone.stack import write_gate

# What others than this driver have open.
_BY_SERVERS = (names.Kind.FRONT, names.Kind.IO, names.Kind.VIEW)


def quiesce(host: Host, stack: Stack) -> None:
    """Let nothing wait for the lender: copying stops, reads fail.

    In the other order failed copies are retried without pause, and a removal
    waits for ever for copies that are queued in the source.
    """
    if stack.assembled:
        host.dm.message(str(names.clone(stack.lv)), 'disable_hydration')
    if stack.may_wait:
        host.dm.message(str(names.source(stack.lv)), 'fail_if_no_path')


def dismantle(host: Host, stack: Stack) -> None:
    """Take away clone, source, session and metadata LV, after a swap.

    This never hangs, also with the lender away. No consumer may map to the
    clone any more. The logout comes first: only it ends the copies that
    wait in a session whose connection is gone, and the clone cannot be
    removed before they end.
    """
    # The service may have died before the swap had made it durable that the
    # lender is needed no more. That is believed when the clone is gone, and a
    # power cut must not bring back that the LV hydrates.
    host.group.flush()
    if stack.of_kind(*names.GATE) and all(
            map(stack.fenced, stack.of_kind(names.Kind.FRONT))):
        # Its front has gone without it, and it leads to the clone.
        write_gate.remove(host, stack)
    quiesce(host, stack)
    _dismantle(host, stack)


def _dismantle(host: Host, stack: Stack) -> None:
    _disassemble(host, stack, host.initiator.logout)
    if stack.meta:
        if stack.meta.devnum and not host.own_meta_group:
            # A new volume may be there next, and shows what it finds. Cinder
            # leaves zeros out when it restores a backup to one.
            _unformat(host, stack)
            host.meta_group.zero(stack.meta.name)
        host.meta_group.remove(stack.meta.name)
        if host.own_meta_group:
            # The data LV may go next: metadata that a power cut brings back
            # without it would be a riddle to an operator.
            host.meta_group.flush()


def _unformat(host: Host, stack: Stack) -> None:
    """Say that the metadata of a copy tells nothing any more.

    Zeros alone would say that it may have been written (``is_untouched``).
    """
    tag = stack.meta_tag
    if stack.tags.copy and tag and tag.ready:
        host.meta_group.retag(
            names.meta_lv(stack.lv), remove=[lv_tags.print_tag(tag)],
            add=[lv_tags.print_tag(dataclasses.replace(tag, ready=0))])
        host.meta_group.flush()


def _disassemble(host: Host, stack: Stack,
                 end_session: typing.Callable[[str], None]) -> None:
    """Take away clone, source and session, in the order of ``dismantle``.

    Nothing waits for the lender any more.
    """
    if stack.iqn:
        end_session(stack.iqn)
    host.dm.remove(str(names.clone(stack.lv)))
    host.dm.remove(str(names.source(stack.lv)))


def close(host: Host, stack: Stack) -> None:
    """Leave nothing with which an LV can be written.

    :raises DeviceBusy: if somebody has a consumer open; nothing was changed
    """
    _require_closed(stack, names.Kind.FRONT, names.Kind.IO)
    for name in stack.of_kind(*names.WRITERS):
        consumers.drop(host, stack, name)
    write_gate.remove(host, stack)


def _require_closed(stack: Stack, *kinds: names.Kind) -> None:
    for name in stack.of_kind(*kinds):
        if stack.is_held(name):
            raise exceptions.DeviceBusy(device=name)


def strip(host: Host, stack: Stack) -> None:
    """Remove everything that is built on an LV.

    :raises DeviceBusy: if somebody has a consumer open; nothing was changed
    """
    _require_closed(stack, *_BY_SERVERS)
    quiesce(host, stack)
    _drop_consumers(host, stack)
    _dismantle(host, stack)


def _drop_consumers(host: Host, stack: Stack) -> None:
    """Remove what exports the consumers, them, and what is below them."""
    for iqn in stack.exports:
        host.targets.remove(iqn)
    for name in (*stack.of_kind(*names.CONSUMERS),
                 *(name for kind in (names.Kind.JOINT, *names.GATE)
                   for name in stack.of_kind(kind))):
        host.dm.remove(str(name))


def put_away(host: Host, stack: Stack) -> None:
    """Remove all devices over an LV; with what is kept they come back.

    What stays is what a power cut leaves too: the LVs with their tags and
    metadata, and the node record with its password. In this order no more is
    lost at any point than a power cut there would lose, and in the end
    nothing:

    * Exports and consumers first: from then on nobody writes. A consumer that
      was closed has no write under way, for the last close waits for them.
    * The flush then makes durable what was written, and the clone's record of
      the regions that were. Without it a region would be read from the lender
      again, as it was before it was written. It needs nothing of the lender.
    * Only then the copying is stopped. What it copies after the flush is
      copied again.
    * The rest as ``dismantle`` says, so that nothing hangs. A source that
      fails I/O in the end queues again before it has a consumer
      (``clones.assemble``).

    :raises DeviceBusy: if somebody uses a consumer; nothing was changed
    """
    for name in stack.of_kind(*names.CONSUMERS):
        if stack.is_held(name):
            raise exceptions.DeviceBusy(device=name)
    _drop_consumers(host, stack)
    if stack.assembled:
        consumers.flush(host, stack)
    quiesce(host, stack)
    _disassemble(host, stack, host.initiator.disconnect)


def condemn(host: Host, stack: Stack) -> None:
    """Write down durably that what an LV holds is about to be lost.

    To overwrite it takes long, is interrupted, and is not for ever decided: a
    database may be restored, or the node be lost that has what this LV was
    needed for.
    """
    if stack.data and not stack.data.pool and not stack.tags.erased:
        tagging.write(host, stack.lv, add=[lv_tags.ErasedTag(stack.volume)])


def erase(host: Host, stack: Stack,
          goes_on: typing.Callable[[], bool]) -> None:
    """Overwrite the data as the operator's ``volume_clear`` says.

    Those of a thin LV nobody can read when it is gone: its pool writes zeros
    before it gives a block away. To overwrite it would take of the pool what
    it never had.

    :param goes_on: asked again and again; who denies it ends it before long
    :raises DeviceBusy: if somebody has it open, or others need it: it could
        not be removed, and would be overwritten again with each try
    :raises NoSuchDevice: if it is not active
    """
    if stack.data and not stack.data.pool:
        if not stack.data.devnum:
            raise exceptions.NoSuchDevice(device=stack.data.path)
        if stack.data.origin or host.dm.open_count(stack.data.devnum):
            raise exceptions.DeviceBusy(device=stack.data.path)
        host.erase(stack.data.path, stack.data.size, goes_on)


def teardown(host: Host, stack: Stack) -> None:
    """Remove an LV and everything built on it.

    :raises DeviceBusy: if somebody has a consumer open; nothing was changed
    """
    _require_closed(stack, *_BY_SERVERS)
    if host.own_meta_group and stack.meta and stack.tags.copy:
        # A power cut may leave a copy without metadata, of which nobody could
        # tell whether it was written.
        condemn(host, stack)
    strip(host, stack)
    host.group.remove(names.data_lv(stack.lv))
