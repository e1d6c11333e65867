# SPDX-License-Identifier: Apache-2.0
"""A volume where a server has it."""
from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.host.dm.status import CloneStatus
from lab import look

if typing.TYPE_CHECKING:
    from lab.lab import LabNode


# What a clone has under way by default, in bytes: in all and in a copy.
MOST, BATCH = 16 << 20, 4 << 20


@dataclasses.dataclass(frozen=True)
class AttachedVolume:
    """An attachment as Nova keeps it.

    :ivar id: of Cinder's attachment
    :ivar node: where its device is
    :ivar path: of the device
    """

    id: str
    volume: str
    node: LabNode
    path: str

    @property
    def lv(self) -> str:
        """Uuid of the LV that the device leads to on its node."""
        return self.path[-36:]

    @property
    def clone(self) -> str:
        """Name of the device that copies to the LV, while there is one."""
        return f'dmclone-clone-{self.lv}'

    def status(self) -> CloneStatus | None:
        """State of that device; None if there is none."""
        line = look.device(self.node, self.clone, 'status', '--noflush')
        return clone_status(line) if line else None

    def let_copy(self, threshold: int, batch: int) -> bool:
        """Let its clone have so many regions under way, in all and in a copy.

        :returns: whether there is the clone
        """
        return (look.message(self.node, self.clone, 'hydration_threshold',
                             str(threshold))
                and look.message(self.node, self.clone,
                                 'hydration_batch_size', str(batch)))

    def brake(self) -> bool:
        """Let its clone copy nothing but what I/O needs; whether there is one.

        The service leaves it alone then.
        """
        return look.message(self.node, self.clone, 'hydration_threshold', '0')

    def widen(self) -> bool:
        """Let it have as much as a clone is made with by default."""
        status = self.status()
        if status is None:
            return False
        region = int(status.region_size.to_bytes())
        return self.let_copy(MOST // region, BATCH // region)


def clone_status(line: str) -> CloneStatus | None:
    """What ``dmsetup status`` says of one device; None if it is no clone."""
    _, _, kind, *rest = line.split(maxsplit=3)
    return CloneStatus.parse(''.join(rest)) if kind == 'clone' else None
