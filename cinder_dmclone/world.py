# SPDX-License-Identifier: Apache-2.0
"""The narrow ports through which the protocol touches the world."""

from __future__ import annotations

import contextlib
import dataclasses
import typing

from cinder import coordination
from tooz import coordination as tooz_coordination

from cinder_dmclone import exceptions
from cinder_dmclone import names

if typing.TYPE_CHECKING:
    from cinder_dmclone.dm import device
    from cinder_dmclone.iscsi import exporter as exporter_module
    from cinder_dmclone.iscsi import importer as importer_module
    from cinder_dmclone import lvm
    from cinder_dmclone.peers import client
    from cinder_dmclone import rows as rows_module
    from cinder_dmclone import units

# With the node: a backend of [coordination] may be shared by all nodes, and a
# node asks others while it holds its own lock.
_LOCK_NAME = 'dmclone-{node}-{volume}'


class Clock(typing.Protocol):
    """Time, as far as the protocol knows it."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the operator chose, in the units the code uses.

    ``budget`` is how long a driver call may take, in seconds.
    """

    node: str
    pool: str
    target_prefix: str
    portal: str
    region_size: units.Bytes
    hydration_threshold: units.Bytes
    hydration_batch: units.Bytes
    budget: float
    key: bytes = dataclasses.field(repr=False)

    @property
    def host(self) -> str:
        """This node's name as connectors give it."""
        return self.node.partition('@')[0]

    @property
    def backend(self) -> str:
        return self.node.partition('@')[2]

    def credentials(self, iqn: str) -> tuple[str, str]:
        """CHAP name and password of a target of this node."""
        return names.chap_user(iqn), names.chap_secret(self.key, iqn)


class Locks:
    """One lock per volume and node, shared by the node's processes."""

    def __init__(self, node: str) -> None:
        self._node = node

    @contextlib.contextmanager
    def volume(self, volume_id: str, seconds: float) -> typing.Iterator[None]:
        """Hold the volume's lock.

        :param seconds: how long to wait for it
        :raises VolumeLocked: if it is still taken then
        """
        lock = coordination.COORDINATOR.get_lock(
            _LOCK_NAME.format(node=self._node, volume=volume_id))
        try:
            taken = lock.acquire(blocking=seconds)
        except tooz_coordination.LockAcquireFailed:
            taken = False
        if not taken:
            raise exceptions.VolumeLocked(
                volume=volume_id, node=self._node, seconds=seconds)
        try:
            yield
        finally:
            lock.release()

    @staticmethod
    def forget(volume_id: str) -> None:
        """Remove what locks of a deleted volume have left on this host.

        For a class method of Cinder that does not know its node.
        """
        coordination.synchronized_remove(
            _LOCK_NAME.format(node='*', volume=volume_id))


@dataclasses.dataclass(frozen=True)
class World:
    """Everything outside the protocol's own logic."""

    settings: Settings
    rows: rows_module.RowStore
    group: lvm.VolumeGroup
    meta_group: lvm.VolumeGroup
    dm: device.DeviceMapper
    exporter: exporter_module.Exporter
    importer: importer_module.Importer
    peers: client.Peers
    locks: Locks
    clock: Clock
    erase: typing.Callable[[str, units.Bytes], None]
