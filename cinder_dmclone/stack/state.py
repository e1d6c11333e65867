# SPDX-License-Identifier: Apache-2.0
"""What a node knows about one of its LVs."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.host.dm import device as dm_device
from cinder_dmclone.host.dm import status
from cinder_dmclone.host.dm import table
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.host import lvm
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.sysfs import sessions


@dataclasses.dataclass(frozen=True)
class Stack:
    """One data LV (by uuid) and everything of this node built on it."""

    lv: LvUuid
    data: lvm.LogicalVolume | None = None
    tags: lv_tags.Tags = lv_tags.Tags()
    meta: lvm.LogicalVolume | None = None
    meta_tag: lv_tags.MetadataTag | None = None
    unreadable: str | None = None
    devices: dict[names.DeviceName, dm_device.Device] = dataclasses.field(
        default_factory=dict)
    clone: status.CloneStatus | None = None
    source: status.MultipathStatus | None = None
    hold: status.MultipathStatus | None = None
    held_writes: int = 0
    exports: dict[str, targets.ExportState] = dataclasses.field(
        default_factory=dict)
    disk: sessions.Disk | None = None

    def of_kind(self, *kinds: names.Kind) -> list[names.DeviceName]:
        """The names of its devices of some kinds."""
        return [name for name in self.devices if name.kind in kinds]

    def device(self, name: names.DeviceName) -> dm_device.Device | None:
        """A device of it, if it is there."""
        return self.devices.get(name)

    def is_open(self, name: names.DeviceName) -> bool:
        """Whether somebody, also another device, has a device of it open."""
        found = self.devices.get(name)
        return bool(found and found.open_count)

    def exports_of(self, name: names.DeviceName) -> dict[
            str, targets.ExportState]:
        """What exports a consumer, by IQN."""
        return {iqn: export for iqn, export in self.exports.items()
                if export.device == name.path}

    def is_held(self, name: names.DeviceName) -> bool:
        """Whether somebody uses a consumer; an export holds its own."""
        if self.exports_of(name):
            return bool(self.sessions_of(name))
        return self.is_open(name)

    def sessions_of(self, name: names.DeviceName) -> set[str]:
        """The initiators that are logged in to what exports a consumer."""
        return {initiator for export in self.exports_of(name).values()
                for initiator in export.sessions}

    @property
    def iqn(self) -> str | None:
        """The target this LV hydrates from, or has just hydrated from."""
        holder = self.tags.source or self.meta_tag
        return holder.iqn if holder else None

    @property
    def volume(self) -> VolumeId:
        """The volume it is of, as far as its tags tell: whose lock to take.

        The LV that a volume was made with has the volume's id.
        """
        return self.tags.volume or VolumeId(self.lv)

    @property
    def volumes(self) -> tuple[VolumeId, ...]:
        """The ids that its tags have for the volume it is of."""
        meta = self.meta_tag.volume if self.meta_tag else None
        return tuple(dict.fromkeys(
            volume for volume in (self.tags.volume, meta) if volume))

    @property
    def keys(self) -> set[str]:
        """What has it looked at: its uuid, or a volume's id."""
        return {self.lv, self.volume, *self.borrowers}

    @property
    def borrowers(self) -> tuple[VolumeId, ...]:
        """The volumes that need it as a source."""
        return tuple(dict.fromkeys(tag.volume for tag in self.tags.lent))

    @property
    def known_as(self) -> LvUuid:
        """Whose names the devices have that the volume is written by here."""
        return self.tags.front.lv if self.tags.front else self.lv

    @property
    def thin(self) -> bool:
        """Whether the blocks of its data are a pool's."""
        return bool(self.data and self.data.pool)

    @property
    def suspended(self) -> bool:
        """Whether all I/O of it waits, as a change by LVM was interrupted."""
        return bool(self.data and self.data.suspended)

    @property
    def missing_disk(self) -> str:
        """That LVM misses a disk of it, or of its metadata, in words."""
        return next((f'LVM misses a disk of {lv.name} ({lv.health})'
                     for lv in (self.data, self.meta) if lv and lv.health),
                    '')

    @property
    def bare(self) -> bool:
        """Whether nothing is built on it, nor reads anything for it."""
        return not (self.devices or self.exports or self.meta or self.disk)

    @property
    def borrows_here(self) -> bool:
        """Whether it hydrates from another LV of this node."""
        return self.tags.source is not None and self.tags.source.local

    @property
    def assembled(self) -> bool:
        """Whether the clone is there; one that is half made is not."""
        return self._maps_to(names.clone(self.lv), table.Clone)

    @property
    def lacks_clone(self) -> bool:
        """Whether it hydrates and its clone is not there to be read."""
        return self.tags.source is not None and not self.assembled

    @property
    def put_together(self) -> bool:
        """Whether all that it has can be read here."""
        return self.data is not None and not self.lacks_clone

    @property
    def leftovers(self) -> bool:
        """Whether anything of a hydration is here but its tag."""
        return bool(self.meta or self.of_kind(names.Kind.CLONE,
                                              names.Kind.SOURCE))

    def waits_for(self, lender: Stack | None) -> bool:
        """Whether it copies nothing until its lender has all.

        Both would fetch each region over the network.

        :param lender: if it is on this node
        """
        return bool(self.borrows_here and lender and lender.tags.source)

    @property
    def queues(self) -> bool:
        """Whether I/O waits while the lender is away, instead of failing."""
        source = self.devices.get(names.source(self.lv))
        return self.never_waits or (
            source is not None and source.table.queues)

    @property
    def quiesced(self) -> bool:
        """Whether nothing waits for a lender that is away, or copies.

        The kernel tries failed copies again without a pause.
        """
        return not (self.queues or self.clone and self.clone.hydration)

    @property
    def never_waits(self) -> bool:
        """Whether it reads of a lender on this node that is never away."""
        return self._maps_to(names.source(self.lv), table.Linear)

    @property
    def may_wait(self) -> bool:
        """Whether what it reads of may be away: I/O waits then, or fails."""
        return self._maps_to(names.source(self.lv), table.Multipath)

    @property
    def given_up(self) -> bool:
        """Whether reads of what has not arrived fail, and always will."""
        return self._maps_to(names.source(self.lv), table.Error)

    @property
    def served_only(self) -> bool:
        """Whether all who use it do so over iSCSI, or in a copy of it.

        Reads that wait would wait in the iSCSI target, which then lets nobody
        log in to any of this node's. A copy lets those that fail wait, and
        can lead them on when it has all.
        """
        views = self.of_kind(names.Kind.VIEW)
        here = self.of_kind(names.Kind.FRONT, names.Kind.IO) + [
            name for name in views if not self.exports_of(name)]
        return not here and bool(views or self.of_kind(
            names.Kind.SERVE, names.Kind.LOAN))

    @property
    def has_path(self) -> bool:
        """Whether the lender can be read.

        dm-multipath keeps a path whose session has failed, until I/O fails.
        """
        return self.never_waits or bool(
            self.source and self.source.usable and (
                self.borrows_here or self.disk
                and self.disk.state == sessions.LOGGED_IN))

    @property
    def lender_away(self) -> bool:
        """Whether there is a session with the lender that does not work.

        iscsid tries to bring it back by itself, and nobody else can. A disk
        that the kernel has given up meanwhile it leaves as it is.
        """
        return (self.disk is not None and self.disk.state not in (
            sessions.LOGGED_IN, sessions.OFFLINE))

    def missing_loans(self, loans: typing.Iterable[lv_tags.LoanTag]
                      ) -> tuple[lv_tags.LoanTag, ...]:
        """Those that are not exported to their borrower."""
        return tuple(tag for tag in loans if not self.lends(tag))

    def frozen(self, offer: Location | None) -> bool:
        """Whether nobody may write it: others need it as it is.

        :param offer: a copy of a live migration, which ends that
        """
        return bool(self.tags.snaps or any(
            tag.borrower != offer for tag in self.tags.lent))

    def loans_to(self, borrower: Location | None) -> list[lv_tags.LoanTag]:
        """What is lent to an LV; nothing if there is none."""
        return [tag for tag in self.tags.lent if tag.borrower == borrower]

    def lends(self, tag: lv_tags.LoanTag) -> bool:
        """Whether its borrower can read what it was lent."""
        if not tag.read:
            return True
        name = names.loan(self.lv, tag.lv)
        return name in self.devices and (tag.local or any(
            export.enabled and tag.initiator in export.initiators
            for export in self.exports_of(name).values()))

    @property
    def write_waits(self) -> bool:
        """Whether something was written to the gated front."""
        return self.alarmed and self.held_writes > 0

    @property
    def alarmed(self) -> bool:
        """Whether the path of the hold has failed, as a write makes it."""
        return self.hold is not None and not self.hold.usable

    @property
    def writes_pass(self) -> bool:
        """Whether the gate is open, though a front may still lead to it."""
        return (self._maps_to(names.sluice(self.lv), table.Linear)
                and not self.alarmed)

    def gated(self, name: names.DeviceName) -> bool:
        """Whether writes to a front wait."""
        return self._maps_to(name, table.Gate)

    def fenced(self, name: names.DeviceName) -> bool:
        """Whether a front answers with errors only."""
        return self._maps_to(name, table.Error)

    def _maps_to(self, name: names.DeviceName,
                 kind: type[table.Target]) -> bool:
        """Whether there is such a device, with this kind of target."""
        found = self.devices.get(name)
        return found is not None and found.table.has(kind)

    @property
    def in_flight(self) -> bool:
        """Whether something was left here to finish or undo."""
        return bool(self.tags.copy or self.tags.source or self.tags.lent
                    or self.tags.erased or self.meta or self.unreadable
                    or self.suspended
                    or self.of_kind(names.Kind.CLONE, names.Kind.SOURCE,
                                    names.Kind.LOAN, names.Kind.JOINT,
                                    *names.GATE))
