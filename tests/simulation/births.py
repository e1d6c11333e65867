# SPDX-License-Identifier: Apache-2.0
"""A volume that begins as what another one is: a second one to keep.

The driver does not make one. Here it is laid down at once, with the driver's
own records and devices, so that what comes after can be explored: who needs
whose LV, and when that ends.
"""

from __future__ import annotations

import uuid

from cinder_dmclone import exceptions
from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.location import Location
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from tests.simulation import cloud as cloud_module
from tests.simulation import truth as truth_module
from tests.unit.fake import cloud as unit_cloud
from tests.unit.fake import ports

# A volume that Cinder clones inherits the generation of the other's row.
GENERATION = 6


class NotNow(Exception):
    """Something else goes on."""


def bear(cloud: cloud_module.Cloud, truth: truth_module.Truth,
         node: cloud_module.Node) -> truth_module.Truth:
    """Make a volume on a node that borrows from one that nobody writes.

    :raises NotNow: if that one is not at rest, or cannot be reached
    """
    lender = cloud.nodes[cloud.row(truth.volume).node]
    if not (lender.process.alive and node.process.alive):
        raise NotNow('a node is down')
    try:
        with lender.process.world.locks.volume(truth.volume, 5.0):
            return _bear(cloud, truth, lender, node)
    except (exceptions.DMCloneException, ports.Killed) as error:
        raise NotNow(str(error)) from error


def _bear(cloud: cloud_module.Cloud, truth: truth_module.Truth,
          lender: cloud_module.Node,
          node: cloud_module.Node) -> truth_module.Truth:
    row, here, there = cloud.row(truth.volume), _host(lender), _host(node)
    stack = inspect.refresh(here, row.lv)
    own = stack.tags.own
    if (row.node != lender.name or row.status != 'available' or row.offer
            or cloud.tables.real or cloud.tables.silent or not own
            or own.generation != row.generation
            or truth.kept is not None or not stack.data
            or stack.of_kind(*names.WRITERS)
            or stack.tags.source and not stack.assembled
            or not cloud.reachable(node.name, lender.name)
            or node.group.block_size != lender.group.block_size
            or node.group.report().free <= stack.data.size):
        raise NotNow('the volume is not at rest')
    volume, lv = str(uuid.uuid4()), str(uuid.uuid4())
    loan = lv_tags.LoanTag(GENERATION, volume, node.name, lv,
                           node.group.uuid, node.initiator.name())
    lender.group.retag(names.data_lv(row.lv), add=[lv_tags.print_tag(loan)])
    lender.group.flush()
    stack = inspect.refresh(here, row.lv)
    exports.export_loan(here, stack, loan)
    cloud.tables.volume(
        volume, f'{node.name}#{unit_cloud.POOL}', _name_id=lv,
        status='available', provider_id=str(ProviderId(
            GENERATION, Location(lender.name, row.lv))))
    _build(there, here, stack, loan)
    node.process.loop.enqueue(lv)
    born = truth_module.Truth(cloud, volume, node, len(truth.regions))
    born.main = False
    for number, region in enumerate(truth.regions):
        value = region.values[region.last]
        born.regions[number] = truth_module.Region([value], [node.name])
    return born


def _build(there: Host, here: Host, stack: inspect.Stack,
           loan: lv_tags.LoanTag) -> None:
    assert stack.data
    iqn = exports.loan_iqn(here, stack, loan)
    user, password = here.settings.credentials(iqn)
    block = here.group.report().block_size
    copy = lv_tags.CopyTag(loan.generation, loan.volume)
    source = lv_tags.SourceTag(
        here.settings.node, stack.lv, iqn, here.settings.portal,
        stack.data.size, block)
    clones.build(there, loan.lv, (copy, source), initiator.Source(
        iqn, source.portal, stack.lv, source.size, block, user, password),
        front=False)
    own = lv_tags.OwnTag(loan.generation, loan.volume)
    there.group.retag(names.data_lv(loan.lv), add=[lv_tags.print_tag(own)],
                      remove=[lv_tags.print_tag(copy)])
    there.group.flush()


def _host(node: cloud_module.Node) -> Host:
    """The devices of a node, without anybody's taking turns."""
    group, meta_group = node.group, node.meta_group
    return Host(
        settings=node.process.world.settings, group=group,
        meta_group=meta_group, dm=node.mapper, targets=node.targets,
        initiator=node.initiator, erase=node.erase)
