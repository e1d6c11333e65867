# SPDX-License-Identifier: Apache-2.0
"""Errors of the driver.

Every message names what it is about and, where somebody can act, what to do.
The classes derive from Cinder's so that the volume manager treats them as a
driver's errors; only classes of ``cinder.exception`` itself cross RPC (see
``cinder_dmclone.service.endpoint``).
"""

from __future__ import annotations

import typing

from cinder import exception


class DMCloneException(exception.VolumeDriverException):
    """Base of all errors raised by this driver."""


class CommandFailed(DMCloneException):
    message = "Command %(command)s failed with status %(code)s: %(stderr)s"


class GroupLost(DMCloneException):
    message = ("Volume group %(group)s is not found, and what LVM wrote on "
               "%(disk)s cannot be read. After a power cut nothing of the "
               "group is lost: \"cinder-dmclone repair-group %(group)s\" "
               "mends it, see \"A node's volume group is not found after a "
               "power cut\" on the page \"Failures\" of the documentation. "
               "Create nothing on that disk.")


class CommandTimeout(DMCloneException):
    message = "Command %(command)s did not end within %(seconds)s seconds."


class NotBegun(CommandTimeout):
    message = ("%(command)s was not begun within %(seconds)s seconds, too "
               "much else is under way. Nothing was changed.")


class HelperNotStarted(DMCloneException):
    message = ("The privileged helper does not start (%(command)s: "
               "%(reason)s): run this as root, or as the user of "
               "cinder-volume, whom sudo has to let run that. Nothing was "
               "done.")


class HelperEnded(CommandTimeout):
    message = ("The privileged helper has ended during %(command)s, which may "
               "be done or not: %(reason)s. It is started again for the next "
               "call; the journal may say why it ended.")


class CannotUnmanage(DMCloneException):
    message = ("Volume %(volume)s on %(node)s stays with Cinder: %(reason)s. "
               "Nothing was changed.")


class CannotRevert(DMCloneException):
    message = ("Volume %(volume)s on %(node)s is not reverted to a "
               "snapshot: %(reason)s. It is as it was.")


class NotAdopted(DMCloneException):
    message = ("LV %(lv)s on %(node)s is not made the volume: %(reason)s. "
               "Nothing was changed.")


class GroupUnrepaired(DMCloneException):
    message = ("Volume group %(group)s is not repaired: %(reason)s. Nothing "
               "was changed.")


class NotTakenBack(DMCloneException):
    message = ("Volume %(volume)s is not taken back on %(node)s: %(reason)s. "
               "Nothing was changed.")


class NotForgotten(DMCloneException):
    message = ("LV %(lv)s on %(node)s is not forgotten: %(reason)s. Nothing "
               "was changed.")


class NotReleased(DMCloneException):
    message = ("LV %(lv)s on %(node)s is not released: %(reason)s. Nothing "
               "was changed.")


class NotUndone(DMCloneException):
    message = ("What was decided about LV %(lv)s on %(node)s stands: "
               "%(reason)s. Nothing was changed.")


class NotMoved(DMCloneException):
    message = ("Snapshot %(snapshot)s stays on %(node)s: %(reason)s. Nothing "
               "was changed.")


class NotGivenUp(DMCloneException):
    message = ("What has not arrived of volume %(volume)s on %(node)s is not "
               "given up: %(reason)s. Nothing was changed.")


class DeviceBusy(DMCloneException):
    message = "Device %(device)s is in use."


class StillUsed(DeviceBusy):
    message = ("Volume %(volume)s on %(node)s is not disconnected: %(reason)s "
               "End what uses it, and try again.")


class ServerHere(DeviceBusy):
    message = ("The server of volume %(volume)s runs on %(node)s, where "
               "%(device)s is in use: its attachment there is kept. If its "
               "live migration failed, it is the attachment on %(peer)s that "
               "has to go.")


class NoSuchDevice(DMCloneException):
    message = "There is no device %(device)s."


class NodeLate(DMCloneException):
    message = ("%(path)s on %(node)s does not lead to the device %(devnum)s "
               "after %(seconds)s seconds: there is %(found)s. Is udev "
               "running there?")


class TableRefused(DMCloneException):
    message = "The table of %(device)s is not changed: %(reason)s."


class SourceMismatch(DMCloneException):
    message = ("The disk behind %(iqn)s is not the lender's volume: "
               "%(reason)s. Nothing was read from it.")


class TargetUnusable(DMCloneException):
    message = "The iSCSI target (LIO) cannot be used: %(reason)s"


class TargetStuck(TargetUnusable):
    """It does not answer: what was asked of it may still be done."""


class InitiatorUnusable(DMCloneException):
    message = "The iSCSI initiator (open-iscsi) cannot be used: %(reason)s"


class LoginFailed(DMCloneException):
    message = "Login to %(iqn)s at %(portal)s failed: %(reason)s"


class CorruptRecord(DMCloneException):
    message = "Cannot read the record %(record)r: %(reason)s"


class LaterFormat(CorruptRecord):
    message = ("The record %(record)r has format %(format)s, which this "
               "release does not know: a later one wrote it. Upgrade "
               "cinder-dmclone on the node that cannot read it; nothing is "
               "changed until then.")


class CopyUnusable(DMCloneException):
    message = ("Copy %(lv)s of volume %(volume)s on %(node)s cannot be "
               "assembled: %(reason)s. Nothing was changed; its source is "
               "kept.")


class DatabaseAway(DMCloneException):
    message = ("The outcome of a change to volume %(volume)s is not known, "
               "the database does not answer: %(reason)s. Nothing else was "
               "changed; the node settles it when the database is back.")


class DatabaseSilent(DMCloneException):
    message = "The database does not answer: %(reason)s."


class RowChanged(DMCloneException):
    message = ("Volume %(volume)s is no longer as it was found "
               "(%(step)s): %(reason)s. Try again.")


class CannotRelocate(DMCloneException):
    message = ("Volume %(volume)s cannot move from %(node)s to %(peer)s: "
               "%(reason)s")


class CannotCut(DMCloneException):
    message = ("Volume %(volume)s on %(node)s cannot go on in a copy of its "
               "own, so that what it was is kept as it is: %(reason)s")


class CannotBear(DMCloneException):
    message = ("Volume %(volume)s cannot be made on %(node)s of what it is to "
               "begin as: %(reason)s")


class HasToStay(CannotRelocate):
    """It cannot be on the other node, but it could be served there."""


class NodeFull(HasToStay):
    """The node that the volume should move to has no room for it."""


class CannotServe(DMCloneException):
    message = ("Volume %(volume)s on %(node)s cannot be %(asked)s: "
               "%(reason)s")

    def __init__(self, message: str | None = None, asked: str = 'connected',
                 **kwargs: typing.Any) -> None:
        """
        :param asked: what was to become of the volume, a participle
        """
        super().__init__(message, asked=asked, **kwargs)


class LiveMigrated(CannotServe):
    """Its server is being live-migrated: that ends by itself."""


class Hydrates(CannotServe):
    """It has not hydrated yet: that ends by itself."""


class CannotSnapshot(DMCloneException):
    message = ("Volume %(volume)s on %(node)s is not made a snapshot: "
               "%(reason)s. Nothing was changed.")


class CannotExtend(DMCloneException):
    message = ("Volume %(volume)s on %(node)s cannot be extended: %(reason)s. "
               "Nothing was changed.")


class GrownInPart(DMCloneException):
    message = ("Volume %(volume)s on %(node)s has grown, and %(device)s, "
               "which is in use, has not: I/O under way in it did not end in "
               "time. Set the status of the volume back, and extend it to "
               "%(gib)s GiB again.")


class NotHome(DMCloneException):
    message = ("Volume %(volume)s belongs to %(owner)s, not to %(node)s.")


class NotBeingMade(DMCloneException, exception.MetadataUpdateFailure):
    """Cinder has no other volume made, on another node, for an error of
    this class (``no_reschedule_types`` of OnFailureRescheduleTask in
    cinder/volume/flows/manager/create_volume.py): it would forget where this
    one is.
    """

    message = ("Volume %(volume)s is not made on %(node)s: its status is "
               "%(status)s, it is on %(owner)s. The request came twice, or "
               "late. Nothing was changed but its status, which is error now: "
               "if the volume is in order, an administrator resets it "
               "(openstack volume set --state).")


class NotWritten(DMCloneException):
    message = ("Nothing was written to volume %(volume)s on %(node)s: its "
               "status is %(status)s. The request came twice, or late. If the "
               "volume is in order, an administrator resets its status, which "
               "is error now (openstack volume set --state).")


class VolumeLocked(DMCloneException):
    message = ("Another operation on volume %(volume)s has been running on "
               "%(node)s for %(seconds)s seconds. Try again later.")


class ServiceRuns(DMCloneException):
    message = ("cinder-volume works on %(node)s, or another command does: "
               "stop it first.")


class Deactivating(DMCloneException):
    message = ("\"cinder-dmclone deactivate\", or another command that keeps "
               "cinder-volume away, has been at work on %(node)s for "
               "%(seconds)s seconds. Wait for its end, then restart "
               "cinder-volume.")


class NoRoom(DMCloneException):
    message = ("Volume group %(group)s on %(node)s has not enough room: "
               "%(needed)s bytes are needed, %(free)s are free.")


class NoMetadataGroup(NoRoom):
    message = ("Node %(node)s can take in no volume until its volume group "
               "%(group)s for metadata can be read: %(reason)s")


class DiskMissing(NoRoom):
    message = ("A disk of volume group %(group)s on %(node)s is missing: LVM "
               "makes nothing in that group.")


class PoolUnusable(NoRoom):
    message = ("Thin pool %(pool)s cannot be used: %(reason)s.")


class PoolSuspended(PoolUnusable):
    message = ("All I/O of thin pool %(pool)s waits: %(reason)s.")


class PoolFull(NoRoom):
    message = ("Thin pool %(pool)s on %(node)s is too full for anything new: "
               "%(used)s are in use, %(most)s percent may be. Delete "
               "volumes, or extend it (lvextend --size or "
               "--poolmetadatasize).")


class PeerUnreachable(DMCloneException):
    message = "Node %(node)s did not answer %(what)s: %(reason)s"


class PeerRefused(DMCloneException):
    message = "Node %(node)s refused %(what)s: %(reason)s"


class RetryLater(DMCloneException):
    message = "Volume %(volume)s on %(node)s has to wait: %(reason)s"
