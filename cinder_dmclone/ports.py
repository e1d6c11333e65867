# SPDX-License-Identifier: Apache-2.0
"""What the code that builds devices may touch: this node, nothing beyond."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.host.dm.device import DeviceMapper
from cinder_dmclone.host.iscsi.targets import Targets
from cinder_dmclone.host.iscsi.initiator import Initiator
from cinder_dmclone.host.lvm import VolumeGroup
from cinder_dmclone.settings import Settings
from cinder_dmclone.units import Bytes


@dataclasses.dataclass(frozen=True)
class Host:
    """The disks, the kernel and the iSCSI daemons of this node.

    :ivar erase: overwrites the device at a path, of so many bytes, as the
        operator wants it, and as long as a function says so
    """

    settings: Settings
    group: VolumeGroup
    meta_group: VolumeGroup
    dm: DeviceMapper
    targets: Targets
    initiator: Initiator
    erase: typing.Callable[[str, Bytes, typing.Callable[[], bool]], None]

    @property
    def own_meta_group(self) -> VolumeGroup | None:
        """The group for metadata, if it is not that of the data as well."""
        return (self.meta_group if self.meta_group.name != self.group.name
                else None)

    @property
    def groups(self) -> list[VolumeGroup]:
        """The groups of this node, each once; that of the data first."""
        return [group for group in (self.group, self.own_meta_group) if group]
