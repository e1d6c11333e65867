# SPDX-License-Identifier: Apache-2.0
"""A copy while it is one: made, put together again, and made whole."""

from __future__ import annotations

import dataclasses

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import metadata
from cinder_dmclone.host.dm import table
from cinder_dmclone.host.iscsi import importer
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone.sysfs import sessions
from cinder_dmclone import units

Unit = state.Unit


def build(host: Host, lv: LvUuid,
          tags: tuple[lv_tags.CopyTag, lv_tags.SourceTag],
          source: importer.Source, front: bool) -> None:
    """Make a copy that can be read and written at once; nothing hydrates.

    :param tags: what the data LV says of itself
    :param front: whether its front stays
    :raises LoginFailed, SourceMismatch: if the lender cannot be reached
    """
    settings = host.settings
    raw = lv_tags.MetadataTag(tags[0].volume, lv, 0, source.iqn)
    ready = dataclasses.replace(raw, ready=1)
    host.group.create(names.data_lv(lv), source.size,
                      [lv_tags.print_tag(tag) for tag in tags])
    host.meta_group.create(
        names.meta_lv(lv), metadata.size(source.size, settings.region_size),
        [lv_tags.print_tag(raw)], zero=True)
    # A login leaves a node record, which outlives a power cut: so must the
    # LV, which alone tells whose it is.
    flush_records(host)
    disk = host.importer.login(source, deadlines.LOGIN_SECONDS)
    unit = inspect.refresh(host, lv)
    _apply_source(host, unit, disk.devnum)
    unit = _apply_clone(host, unit)
    name = names.front(settings.host, lv)
    consumers.consume(host, unit, name)
    # A flush through the clone commits the metadata it has just formatted.
    host.dm.flush(name.path)
    if not front:
        host.dm.remove(str(name))
    host.meta_group.retag(
        names.meta_lv(lv), add=[lv_tags.print_tag(ready)],
        remove=[lv_tags.print_tag(raw)])
    flush_records(host)


def flush_records(host: Host) -> None:
    """Make LVM's own metadata durable: LVM never flushes."""
    host.group.flush()
    if host.meta_group.name != host.group.name:
        host.meta_group.flush()


def assemble(host: Host, unit: Unit) -> Unit:
    """Put a committed copy together again, never format anything.

    Works without the lender: the source then queues until a path is found.

    :raises CopyUnusable: if the metadata is not what it must be; an empty
        superblock would be formatted silently and lose every write since
        the commit (``dm_clone_metadata_open`` in dm-clone-metadata.c)
    """
    source = unit.tags.source
    assert source is not None
    if not unit.meta or not unit.meta_tag or not unit.meta_tag.ready:
        raise _unusable(host, unit, 'its metadata LV is missing or was '
                        'never formatted')
    head = host.meta_group.read_head(unit.meta.name, metadata.HEAD)
    try:
        block = metadata.Superblock.parse(head)
    except ValueError as error:
        raise _unusable(host, unit, error) from error
    if block.target_size.to_bytes() != source.size:
        raise _unusable(host, unit, f'its metadata is for '
                        f'{block.target_size.to_bytes()} bytes instead of '
                        f'{source.size}')
    _apply_source(host, unit, unit.disk.devnum if unit.disk else None)
    return _apply_clone(host, unit, block.region_size)


def _unusable(host: Host, unit: Unit,
              reason: object) -> exceptions.CopyUnusable:
    return exceptions.CopyUnusable(
        lv=unit.lv, volume=unit.tags.volume, node=host.settings.node,
        reason=reason)


def _apply_source(host: Host, unit: Unit, path: str | None,
                  queue: bool = True) -> None:
    source = unit.tags.source
    assert source is not None
    host.dm.apply(
        str(names.source(unit.lv)),
        table.Table.single(units.Bytes(source.size).to_sectors(),
                           table.Multipath(path, queue)),
        readonly=True, noflush=True)


def _apply_clone(host: Host, unit: Unit,
                 region_size: units.Sectors | None = None) -> Unit:
    """Load the clone; its table is never changed afterwards."""
    name = names.clone(unit.lv)
    if name not in unit.devices:
        settings, source = host.settings, unit.tags.source
        assert source is not None
        if not unit.meta or not unit.meta.devnum:
            raise _unusable(host, unit, 'its metadata LV is missing or not '
                            'active')
        region = region_size or settings.region_size.to_sectors()
        target = table.Clone(
            metadata=unit.meta.devnum, data=consumers.data_devnum(unit),
            source=host.dm.devnum(str(names.source(unit.lv))),
            region_size=region,
            features=frozenset(['no_hydration', 'no_discard_passdown']),
            core={
                'hydration_threshold': _regions(
                    settings.hydration_threshold, region),
                'hydration_batch_size': _regions(
                    settings.hydration_batch, region)})
        host.dm.apply(
            str(name), table.Table.single(
                units.Bytes(source.size).to_sectors(), target))
    made = host.dm.devices(unit.lv)[str(name)]
    return dataclasses.replace(unit, devices={**unit.devices, name: made})


def _regions(amount: units.Bytes, region: units.Sectors) -> int:
    return max(1, amount // region.to_bytes())


def reconnect(host: Host, unit: Unit, queue: bool = True) -> bool:
    """Give the source its path back if the lender is there again.

    The kernel checks nothing when a session recovers, so the disk's identity
    is checked each time.

    :param queue: whether I/O has to wait while there is no path
    :returns: whether the source has a path now
    :raises SourceMismatch, LoginFailed: see there
    """
    source = unit.tags.source
    assert source is not None
    if queue and not unit.queues:
        # A teardown that did not end: I/O would fail, not wait.
        _apply_source(host, unit, unit.disk.devnum if unit.disk else None)
    disk = unit.disk or host.importer.relogin(
        source.iqn, source.portal, deadlines.LOGIN_SECONDS)
    if disk.state != sessions.LOGGED_IN:
        return False
    host.importer.verify(_recorded(source), disk)
    if unit.source and disk.devnum in unit.source.paths:
        host.dm.message(str(names.source(unit.lv)), 'reinstate_path',
                        disk.devnum)
    else:
        _apply_source(host, unit, disk.devnum, queue)
    return True


def _recorded(tag: lv_tags.SourceTag) -> importer.Source:
    """What must be found behind a recorded source; holds no secret."""
    return importer.Source(tag.iqn, tag.portal, tag.lv,
                           units.Bytes(tag.size), tag.block, '', '')


def hydrate(host: Host, unit: Unit) -> None:
    """Let the background copying run."""
    host.dm.message(str(names.clone(unit.lv)), 'enable_hydration')


def is_complete(host: Host, unit: Unit) -> bool:
    """Whether all regions are on the data LV, also after a power cut.

    The in-core count runs ahead of the disk; a status that flushes commits
    the metadata and flushes the data LV first, and is then believed.
    """
    name = str(names.clone(unit.lv))
    host.dm.clone_status(name, flush=True)
    return host.dm.clone_status(name, flush=True).complete


def swap(host: Host, unit: Unit) -> None:
    """Move every consumer from the clone to the data LV, and record it.

    Only for a clone that is complete. The source is pointed at the data LV
    first, so that a read stuck on a dead lender ends; each consumer's stall
    is one table swap.
    """
    data = consumers.active_data(unit)
    if unit.iqn and unit.lender_away:
        # A read that waits in the session comes back to the source only
        # when the session ends; nothing is needed from the lender.
        host.importer.logout(unit.iqn)
    if names.source(unit.lv) in unit.devices:
        _apply_source(host, unit, data.devnum)
    bare = dataclasses.replace(
        unit, tags=dataclasses.replace(unit.tags, source=None), devices={
            name: found for name, found in unit.devices.items()
            if name.kind is not names.Kind.CLONE})
    for name in unit.of_kind(*names.CONSUMERS):
        if not unit.fenced(name):
            consumers.consume(host, bare, name)
    assert unit.tags.source is not None
    host.group.retag(names.data_lv(unit.lv),
                     remove=[lv_tags.print_tag(unit.tags.source)])
    flush_records(host)
