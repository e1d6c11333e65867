# SPDX-License-Identifier: Apache-2.0
"""A volume that begins as what another one is: a second one to keep."""

from __future__ import annotations

import random
import typing
import uuid

from cinder_dmclone.location import VolumeId
from cinder_dmclone.service import births
from tests.simulation import cloud as cloud_module
from tests.simulation import control
from tests.simulation import snaps
from tests.simulation import truth as truth_module
from tests.unit.fake import cloud as unit_cloud

# A row that Cinder clones has the record of another one.
INHERITED = '5'


def woven(steps: typing.Iterable[tuple[str, ...]],
          hosts: typing.Sequence[str], choices: random.Random
          ) -> typing.Iterator[tuple[str, ...]]:
    """Steps of a story with births and snapshots between them."""
    for step in steps:
        yield step
        if choices.random() < 0.4:
            host = choices.choice(hosts)
            yield choices.choice((('birth', host), ('birth', host), ('snap',),
                                  ('birth_snap', host)))


def bear(cloud: cloud_module.Cloud, truth: truth_module.Truth,
         node: cloud_module.Node,
         taken: snaps.Snapshot | None = None) -> truth_module.Truth:
    """Have a volume made on a node that begins as what another one is.

    It is kept track of also if it was not made.

    :param taken: a snapshot of that one, as which it begins
    """
    volume = VolumeId(str(uuid.uuid4()))
    cloud.tables.volume(volume, f'{node.name}#{unit_cloud.POOL}',
                        status='creating', provider_id=INHERITED,
                        size=cloud.row(truth.volume).size)
    born = truth_module.Truth(cloud, volume, node, len(truth.regions))
    born.main, born.unborn = False, True
    # What the other needs may be gone already, and it begins all the same.
    born.lost = set(truth.lost)
    truth.born.append(born)
    before = [region.last for region in truth.regions]

    def make(process: cloud_module.Process) -> None:
        if taken:
            births.from_snapshot(process.service, volume, taken.id)
        else:
            births.clone(process.service, volume, truth.volume)
    control.Api(cloud, volume).bear(make, [
        other for other in cloud.nodes.values() if other is not node])
    # It is what the other was at one moment of these.
    for number, first in enumerate(before):
        region = truth.regions[number]
        values = region.values[min(first, region.last):]
        if taken:
            values = ([taken.content[number]] if taken.content
                      else region.values[:])
        born.regions[number] = truth_module.Region(
            values, [node.name] * len(values))
    born.unborn = False
    # It, or what it needs, may have gone meanwhile.
    born.mourn(born.lost)
    if born.owner in born.lost:
        born.kept = []
    return born
