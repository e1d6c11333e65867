# SPDX-License-Identifier: Apache-2.0
"""A copy while it is one: made, put together again, and made whole."""

from __future__ import annotations

import dataclasses
import struct
from typing import Callable
from typing import Iterable
from typing import Iterator

from oslo_log import log as logging

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import bitmap
from cinder_dmclone.host.dm import metadata
from cinder_dmclone.host.dm import table
from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.host.thin_map import Range
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import teardown
from cinder_dmclone.sysfs import sessions
from cinder_dmclone import units

LOG = logging.getLogger(__name__)

# What a copy says that it is to be: a volume, or a snapshot.
Becomes = lv_tags.CopyTag | lv_tags.SnapTag

# The least regions of a copy whose lender is on this node. What is around a
# small write costs little to read there, and large reads and writes would be
# split ("Before a volume has arrived" in doc/source/performance.rst).
_NEAR = units.Bytes(64 << 10)

# At once of a metadata LV, and how often it is tried while a server writes.
_READ_SIZE = 1 << 20
_READS = 5

_unusable = consumers.unusable


def create(host: Host, lv: LvUuid, size: units.Bytes, copy: Becomes,
           source: lv_tags.SourceTag, *others: lv_tags.Tag) -> None:
    """Make the LVs of a copy.

    :param size: its own, which may be more than the source's
    :param others: what else the data LV says of itself
    """
    raw = lv_tags.MetadataTag(copy.volume, lv, 0, source.iqn)
    host.group.create(
        names.data_lv(lv), size,
        [lv_tags.print_tag(tag) for tag in (copy, source, *others)])
    if host.own_meta_group:
        # Who finds the metadata LV looks for the other.
        host.group.flush()
    host.meta_group.create(
        names.meta_lv(lv),
        metadata.size(source.size, _region(host, source)),
        [lv_tags.print_tag(raw)], metadata=True)
    # A login leaves a node record, which outlives a power cut: so must the
    # LV, which alone tells whose it is.
    flush_records(host)


def build(host: Host, lv: LvUuid, source: initiator.Source, front: bool,
          skip: Iterable[Range] = ()) -> None:
    """Let a copy that was created be read and written; nothing hydrates.

    :param front: whether a front of it is made
    :param skip: what the new LV shows by itself as its source does
    :raises LoginFailed, SourceMismatch: if the lender cannot be reached
    """
    disk = host.initiator.login(source, deadlines.LOGIN_SECONDS)
    stack = inspect.refresh(host, lv)
    _apply_source(host, stack, disk.devnum)
    stack = _apply_clone(host, stack)
    _skip(host, stack, skip)
    if front:
        consumers.consume(host, stack, names.front(host.settings.host, lv))
    _format(host, stack)


def build_here(host: Host, lv: LvUuid,
               skip: Iterable[Range] = ()) -> Stack:
    """The same for one of an LV of this node, which lends to it already.

    Nobody uses it yet.
    """
    stack = inspect.refresh(host, lv)
    _apply_source(host, stack, _path(host, stack))
    stack = _apply_clone(host, stack)
    _skip(host, stack, skip)
    _format(host, stack)
    return inspect.refresh(host, lv)


def _region(host: Host, source: lv_tags.SourceTag) -> units.Bytes:
    """The size of the regions of a copy that is made."""
    least = host.settings.least_region
    return metadata.region_size(
        source.size, max(least, _NEAR) if source.local else least)


def _skip(host: Host, stack: Stack, ranges: Iterable[Range]) -> None:
    """Copy nothing of regions that lie in a range with all they have.

    Durable when the metadata is: after ``_format``.
    """
    assert stack.tags.source is not None
    region = _region(host, stack.tags.source)
    inside = [(first.round_up(region), units.Bytes(end // region * region))
              for first, end in ranges]
    whole = [(first, end) for first, end in inside if first < end]
    if not whole:
        return
    try:
        host.dm.take_as_copied(str(names.clone(stack.lv)), whole)
    except exceptions.CommandFailed as error:
        LOG.info('All of LV %(lv)s is copied: %(error)s',
                 {'lv': stack.lv, 'error': error.msg})


def _format(host: Host, stack: Stack) -> None:
    """Make the metadata durable that the kernel has just made."""
    # A flush through the clone commits it.
    host.dm.flush(names.clone(stack.lv).path)
    assert stack.meta_tag is not None
    ready = dataclasses.replace(stack.meta_tag, ready=1)
    host.meta_group.retag(
        names.meta_lv(stack.lv), add=[lv_tags.print_tag(ready)],
        remove=[lv_tags.print_tag(stack.meta_tag)])
    flush_records(host)


def flush_records(host: Host) -> None:
    """Make LVM's own metadata durable: LVM never flushes."""
    for group in host.groups:
        group.flush()


def assemble(host: Host, stack: Stack) -> Stack:
    """Put a committed copy together again, never format anything.

    Works without the lender: the source then queues until a path is found.
    One on this node has to lend already.

    :raises NoSuchDevice: if that does not
    :raises CopyUnusable: if the metadata is not what it must be; an empty
        superblock would be formatted silently and lose every write since
        the commit (``dm_clone_metadata_open`` in dm-clone-metadata.c)
    """
    source = stack.tags.source
    assert source is not None
    if not stack.meta or not stack.meta_tag or not stack.meta_tag.ready:
        raise _unusable(host, stack, 'its metadata LV is missing or was '
                        'never formatted')
    head = host.meta_group.read(stack.meta.name, 0, metadata.HEAD)
    try:
        block = metadata.Superblock.parse(head)
    except ValueError as error:
        raise _unusable(host, stack, error) from error
    if block.target_size.to_bytes() != source.size:
        raise _unusable(host, stack, f'its metadata is for '
                        f'{block.target_size.to_bytes()} bytes instead of '
                        f'{source.size}')
    _apply_source(host, stack, _path(host, stack))
    return _apply_clone(host, stack, block.region_size)


def _apply_source(host: Host, stack: Stack, path: str | None,
                  queue: bool = True) -> None:
    source = stack.tags.source
    assert source is not None
    target: table.Target = table.Multipath(path, queue)
    if stack.tags.lost:
        target = table.Error()
    elif path and _never_waits(host, stack):
        target = table.Linear(path)
    host.dm.apply(
        str(names.source(stack.lv)),
        table.Table.single(source.size.to_sectors(), target),
        readonly=True, noflush=True)


def _path(host: Host, stack: Stack) -> str | None:
    """'major:minor' of what the lender lends; None if there is no session.

    :raises NoSuchDevice: if a lender on this node does not lend
    """
    source = stack.tags.source
    assert source is not None
    if source.local:
        return host.dm.devnum(str(names.loan(source.lv, stack.lv)))
    return stack.disk.devnum if stack.disk else None


def _never_waits(host: Host, stack: Stack) -> bool:
    """Whether the lender is on this node, and whole.

    One that hydrates itself lets reads fail while its own lender is away.
    """
    source = stack.tags.source
    if source is None or not source.local:
        return False
    if stack.device(names.source(stack.lv)) and not stack.given_up:
        return stack.never_waits
    return not inspect.refresh(host, source.lv).tags.source


def _apply_clone(host: Host, stack: Stack,
                 region_size: units.Sectors | None = None) -> Stack:
    """Load the clone; its table is never changed afterwards."""
    name = names.clone(stack.lv)
    if not stack.assembled:
        settings, source = host.settings, stack.tags.source
        assert source is not None
        if not stack.meta or not stack.meta.devnum:
            raise _unusable(host, stack, 'its metadata LV is missing or not '
                            'active')
        region = region_size or _region(host, source).to_sectors()
        target = table.Clone(
            metadata=stack.meta.devnum,
            data=consumers.data_devnum(host, stack),
            source=host.dm.devnum(str(names.source(stack.lv))),
            region_size=region,
            features=frozenset(['no_hydration', 'no_discard_passdown']),
            core={
                'hydration_threshold': _regions(
                    settings.hydration_threshold, region),
                'hydration_batch_size': _regions(
                    settings.hydration_batch, region)})
        host.dm.apply(
            str(name), table.Table.single(
                source.size.to_sectors(), target))
    made = host.dm.devices(stack.lv)[str(name)]
    return dataclasses.replace(stack, devices={**stack.devices, name: made})


def _regions(amount: units.Bytes, region: units.Sectors) -> int:
    return max(1, amount // region.to_bytes())


def reconnect(host: Host, stack: Stack, queue: bool = True) -> bool:
    """Give the source its path back if the lender is there again.

    The kernel checks nothing when a session recovers, so the disk's identity
    is checked each time.

    :param queue: whether I/O has to wait while there is no path
    :returns: whether the source has a path now
    :raises SourceMismatch, LoginFailed: see there
    """
    source = stack.tags.source
    assert source is not None
    if queue:
        wait_again(host, stack)
    if not source.local:
        disk = stack.disk or host.initiator.relogin(
            source.iqn, source.portal, deadlines.LOGIN_SECONDS)
        if disk.state == sessions.OFFLINE:
            disk = host.initiator.revive(source.iqn, disk)
        if disk.state != sessions.LOGGED_IN:
            return False
        host.initiator.verify(_recorded(source), disk)
        stack = dataclasses.replace(stack, disk=disk)
    path = _path(host, stack)
    assert path is not None
    if stack.source and path in stack.source.paths:
        host.dm.message(str(names.source(stack.lv)), 'reinstate_path', path)
    else:
        _apply_source(host, stack, path, queue)
    return True


def wait_again(host: Host, stack: Stack) -> None:
    """Let I/O wait while the lender is away, which would fail.

    So a copy is left that only lent, by a teardown that did not end, or by
    giving up: ``consumers.let_wait`` cannot undo that, it needs a source that
    leads to the lender.
    """
    if not stack.queues:
        _apply_source(host, stack, _path(host, stack))


def _recorded(tag: lv_tags.SourceTag) -> initiator.Source:
    """What must be found behind a recorded source; holds no secret."""
    return initiator.Source(tag.iqn, tag.portal, tag.lv, tag.size, tag.block,
                            '', '')


def hydrate(host: Host, stack: Stack) -> None:
    """Let the background copying run."""
    host.dm.message(str(names.clone(stack.lv)), 'enable_hydration')


def is_complete(host: Host, stack: Stack) -> bool:
    """Whether all regions are on the data LV, also after a power cut.

    The in-core count runs ahead of the disk; a status that flushes commits
    the metadata and flushes the data LV first, and is then believed.
    """
    name = str(names.clone(stack.lv))
    host.dm.clone_status(name, flush=True)
    return host.dm.clone_status(name, flush=True).complete


def swap(host: Host, stack: Stack) -> None:
    """Move every consumer from the clone to the data LV, and record it.

    Only for a clone that is complete. The source is pointed at the data LV
    first, so that a read stuck on a dead lender ends; each consumer's stall
    is one table swap.
    """
    end_reads(host, stack)
    bare = dataclasses.replace(
        stack, tags=dataclasses.replace(stack.tags, source=None, lost=None),
        devices={
            name: found for name, found in stack.devices.items()
            if name.kind is not names.Kind.CLONE})
    for name in stack.of_kind(*names.CONSUMERS):
        if not stack.fenced(name):
            consumers.consume(host, bare, name)
    host.group.retag(names.data_lv(stack.lv), remove=[
        lv_tags.print_tag(tag)
        for tag in (stack.tags.source, stack.tags.lost) if tag])
    flush_records(host)


def end_reads(host: Host, stack: Stack) -> None:
    """Let reads that wait for the lender of a complete clone go on."""
    data = consumers.active_data(host, stack)
    if stack.iqn and stack.lender_away:
        # A read that waits in the session comes back to the source only
        # when the session ends; nothing is needed from the lender.
        _end(stack, host.initiator.logout)
    if stack.may_wait:
        # Also if it was about to be given up: what is read is here by now.
        wanted = dataclasses.replace(stack.tags, lost=None)
        _apply_source(host, dataclasses.replace(stack, tags=wanted),
                      data.devnum)


def give_up(host: Host, stack: Stack) -> None:
    """Let reads of what has not arrived fail; its source is lost.

    The clone stays as it is, over a source that is an error target: what has
    arrived is read and written as before. A write of a whole region makes that
    arrive; one of a part of it would have to read the rest, and fails
    (``hydrate_bio_region`` in dm-clone-target.c). Nothing is copied by itself:
    a copy that fails is tried again without a pause.
    """
    teardown.quiesce(host, stack)
    _end(stack, host.initiator.disconnect)
    _apply_source(host, stack, None)


def _end(stack: Stack, end_session: Callable[[str], None]) -> None:
    """Let what waits in the session with a lender that is away come back.

    Where iscsid refuses that it comes back by itself, when the session has
    been away for two minutes (``node.session.timeo.replacement_timeout``).
    """
    if not stack.iqn:
        return
    try:
        end_session(stack.iqn)
    except exceptions.InitiatorUnusable as error:
        LOG.info('LV %(lv)s needs no lender any more: %(error)s',
                 {'lv': stack.lv, 'error': error.msg})


def is_untouched(host: Host, stack: Stack) -> bool:
    """Whether a copy that never hydrated was never written, for certain.

    A thin one may lack what its lender lacks as well, without a write. What
    borrows from nobody is on the node of what it was made of, and is lost with
    that.
    """
    source = stack.tags.source
    if source is None:
        return True
    try:
        if stack.data and stack.thin:
            return host.group.mapped(stack.data) == 0
        if stack.meta is None:
            # It may be the group that is missing.
            return host.own_meta_group is None
        ready = stack.meta_tag and stack.meta_tag.ready
        return not ready or next(missing(host, stack), None) == (
            0, source.size)
    except exceptions.DMCloneException as error:
        LOG.warning('LV %(lv)s: whether it was written is not known: '
                    '%(error)s', {'lv': stack.lv, 'error': error.msg})
        return False


def missing(host: Host, stack: Stack) -> Iterator[Range]:
    """Which bytes have not arrived, in order; there may be millions of ranges.

    :raises CopyUnusable: if the metadata makes no sense
    :raises RetryLater: if it changes all the while
    """
    meta = stack.meta
    if meta is None:
        raise _unusable(host, stack, 'its metadata LV is missing')
    for _ in range(_READS):
        if stack.assembled:
            # It commits what is known of in the kernel only.
            host.dm.clone_status(str(names.clone(stack.lv)), flush=True)
        head = host.meta_group.read(meta.name, 0, metadata.HEAD)
        image = b''.join(
            host.meta_group.read(meta.name, first,
                                 min(_READ_SIZE, meta.size - first))
            for first in range(0, meta.size, _READ_SIZE))
        # What a superblock leads to is written over only after the next.
        if host.meta_group.read(meta.name, 0, metadata.HEAD) == head:
            return _missing(host, stack, head, image)
    raise exceptions.RetryLater(
        volume=stack.volume, node=host.settings.node,
        reason='the metadata of its clone changes all the while')


def _missing(host: Host, stack: Stack, head: bytes,
             image: bytes) -> Iterator[Range]:
    try:
        region = metadata.Superblock.parse(head).region_size.to_bytes()
        found = bitmap.missing(head + image[metadata.HEAD:])
    except (ValueError, struct.error) as error:
        raise _unusable(host, stack, error) from error
    assert stack.tags.source is not None
    size = stack.tags.source.size
    return ((units.Bytes(first * region),
             units.Bytes(min(end * region, size))) for first, end in found)
