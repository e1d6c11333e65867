# SPDX-License-Identifier: Apache-2.0
"""What no protocol can mend: data or records of a whole node are lost.

Nothing more may be lost by it, and an operator brings the rest in order.
"""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.host import lvm
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.reconcile import adoption
from cinder_dmclone.reconcile import observed
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from tests.simulation import truth as truth_module
from tests.unit.fake import cloud as unit_cloud

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module


def restore_database(cloud: cloud_module.Cloud,
                     truth: truth_module.Truth) -> bool:
    """Put the row back to where it was before the last relocation.

    Not before the new owner has its tag, nor while an offer is open or a
    server left behind: then nothing but the row tells what was committed. Nor
    if there is a snapshot that was not there then.

    :returns: whether there was something to put back
    """
    tables, row = cloud.tables, cloud.row(truth.volume)
    if (not tables.before_commit or tables.real or truth.kept is not None
            or row.offer or row.deleted
            or row.status in ('deleting', 'unmanaging', 'maintenance')
            # A manager has yet to write, whatever the row says.
            or row.migration_status == 'migrating'
            or tables.pinned_then != tables.pinned()):
        return False
    newest = _newest(cloud, truth)
    behind = any(found.openers for node in cloud.nodes.values()
                 for found in node.mapper.mapped.values()
                 if node.name != row.node)
    if not newest or newest[0] != row.owner or behind:
        return False
    tables.real = row.owner
    record = dataclasses.replace(ProviderId.parse(
        tables.before_commit['provider_id']), offer=None)
    tables.update(truth.volume, **{**tables.before_commit,
                                   'provider_id': str(record)})
    return True


def adopt(cloud: cloud_module.Cloud, truth: truth_module.Truth) -> None:
    """What the documentation tells the operator to do after that: ``adopt``.

    Of the LVs that may be adopted that with the highest generation.
    """
    if cloud.tables.real:
        newest = _newest(cloud, truth)
        if not newest or newest[0] == cloud.row(truth.volume).owner:
            # The node that had it has got empty disks since.
            cloud.tables.real = None
            return
        owner, tags = newest
        name = names.data_lv(owner.lv)
        _, size, texts = cloud.nodes[owner.node].group._durable[name]
        lv = lvm.LogicalVolume(name, name, size, texts, None, False, True)
        facts = observed.Facts(owner.node, state.Stack(owner.lv, lv, tags),
                               cloud.row(truth.volume))
        why = adoption.why_not(facts)
        # Nobody deletes a volume before its row is right, but in a story.
        if why and not cloud.row(truth.volume).deleted:
            raise truth_module.Violation('I17 adopted', f'{owner}: {why}')
        cloud.tables.update(
            truth.volume, host=f'{owner.node}#{unit_cloud.POOL}',
            _name_id=owner.lv, provider_id=str(adoption.record(facts)))
        cloud.tables.real = None
        node = cloud.nodes[owner.node]
        if node.process.alive:
            node.kill()
            node.start()


def _newest(cloud: cloud_module.Cloud, truth: truth_module.Truth
            ) -> tuple[Location, lv_tags.Tags] | None:
    """The LV that was the volume last, as the tags on the disks say."""
    found = []
    for node in cloud.nodes.values():
        for name, (_, _, texts) in node.group._durable.items():
            tags, uuid = lv_tags.Tags.parse(texts), names.lv_uuid(name)
            if tags.own and uuid and name == names.data_lv(uuid) and (
                    tags.own.volume == truth.volume):
                found.append((tags.own.generation, Location(node.name, uuid),
                              tags))
    newest = max(found, key=lambda one: one[0], default=None)
    return newest and newest[1:]


def reinstall(node: cloud_module.Node, truth: truth_module.Truth) -> None:
    """Give a node empty disks."""
    for one in truth.all:
        one.lose_disks(node)
    if node.up:
        node.lose_power()
    for group in {node.group, node.meta_group}:
        group.volumes.clear()
        group._durable.clear()
        group.uuid = GroupUuid(f'{group.uuid}-anew')
    node.initiator.records_.clear()


def lends_to_lost(cloud: cloud_module.Cloud,
                  truth: truth_module.Truth) -> bool:
    """Whether only an operator can help after that.

    The LV that the row makes the volume was to be copied to a disk that is
    gone, perhaps before anything was made there, and nobody can say that it
    never became the volume.
    """
    home = cloud.row(truth.volume)
    lv = cloud.nodes[home.node].group.volumes.get(names.data_lv(home.lv))
    return truth.kept is None and not home.deleted and not home.offer and (
        any(_lost(text, cloud) for text in lv.tags) if lv else False)


def _lost(text: str, cloud: cloud_module.Cloud) -> bool:
    tag = lv_tags.parse_tag(text)
    return isinstance(tag, lv_tags.LoanTag) and (
        tag.group != cloud.nodes[tag.borrower.node].group.uuid)


def break_sector(cloud: cloud_module.Cloud, truth: truth_module.Truth,
                 number: int) -> bool:
    """Let a region of an LV that is lent to another node be unreadable.

    On the node of the volume it is an I/O error for its server, as one of its
    disk would be without this driver.

    :returns: whether there is one
    """
    for node in cloud.nodes.values():
        for name, lv in node.group.volumes.items():
            lent = lv_tags.Tags.parse(lv.tags).lent
            uuid = names.lv_uuid(name)
            if lent and uuid and truth.owner.node != node.name:
                node.mapper.bad.add((name, number))
                return True
    return False
