# SPDX-License-Identifier: Apache-2.0
"""Disks of other nodes on this one: iSCSI sessions of open-iscsi."""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
import re
import threading
import time

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.marks import reads
from cinder_dmclone.privileged import iscsi
from cinder_dmclone.sysfs import sessions
from cinder_dmclone.sysfs.sessions import Disk
from cinder_dmclone import units

LOG = logging.getLogger(__name__)

# iscsid's two attempts end by themselves within 11 s. The process that waits
# for them is not killed before: iscsid would go on, and a session could appear
# after its login was given up.
LOGIN_SECONDS = 13.0
# With the lender away: 5 s for the answer to the logout, in the worst case
# (a command in flight) after 10 s until the session is found to be dead.
LOGOUT_SECONDS = 20.0
# The kernel tears the session down after iscsiadm has returned.
GONE_SECONDS = 2.0
VERIFY_SECONDS = 10.0
RESCAN_SECONDS = 3.0
POLL_SECONDS = 0.05

# Of many disks of a lender that is away so many are tried: each login keeps a
# thread of the privileged helper waiting.
LOGINS_AT_ONCE = 4
SILENT_SECONDS = 5.0
# What iscsiadm says if nobody answers: ISCSI_ERR_TRANS, _TRANS_TIMEOUT.
_NO_ANSWER = re.compile(' failed with status [48]: ')


@dataclasses.dataclass(frozen=True)
class Source:
    """A lender's target as it was announced to us.

    :ivar portal: 'ip:port'
    :ivar serial: uuid of the lender's LV
    :ivar block_size: logical, in bytes
    """

    iqn: str
    portal: str
    serial: str
    size: units.Bytes
    block_size: int
    user: str
    password: str = dataclasses.field(repr=False)


class _Portal:
    """Where a lender is found, and until when nobody asks it again.

    :ivar silent_until: a time, also a past one, if nobody has answered the
        last login
    """

    def __init__(self) -> None:
        self.turns = threading.BoundedSemaphore(LOGINS_AT_ONCE)
        self.silent_until: float | None = None


class Initiator:
    """Logs in and out; sysfs and the node records have what there is."""

    def __init__(self) -> None:
        self._portals: collections.defaultdict[str, _Portal] = (
            collections.defaultdict(_Portal))

    def check(self) -> None:
        """Make sure that importing is possible.

        :raises InitiatorUnusable: with a reason of one line
        """
        self.name()
        # Bound by iscsid, or by systemd in its place until it is needed.
        if '@ISCSIADM_ABSTRACT_NAMESPACE' not in pathlib.Path(
                '/proc/net/unix').read_text():
            raise exceptions.InitiatorUnusable(
                reason='iscsid is not running: systemctl enable --now iscsid')

    @reads
    def name(self) -> str:
        """Name of this node's initiator, in lower case as targets see it."""
        return iscsi.initiator_name()

    @reads
    def disk(self, iqn: str) -> Disk | None:
        """The imported disk, None without a session or before its scan."""
        session = sessions.find(iqn)
        return session.disk if session else None

    @reads
    def disks(self) -> dict[str, Disk | None]:
        """What ``disk`` says of all sessions, by IQN, looked at once."""
        return {session.iqn: session.disk
                for session in reversed(sessions.by_use(sessions.sessions()))}

    def login(self, source: Source, timeout: float) -> Disk:
        """Import a disk and make sure that it is the right one. Idempotent.

        :param timeout: seconds for everything, but a login that the lender
            does not answer takes up to ``LOGIN_SECONDS`` in any case
        :raises LoginFailed: if the lender is away, refuses, or shows no disk
        :raises SourceMismatch: if the disk is not the one announced; it
            stays imported, log out
        """
        deadline = time.monotonic() + timeout
        try:
            iscsi.write_record(source.iqn, source.portal, source.user,
                               source.password)
        except (exceptions.CommandFailed, exceptions.CommandTimeout,
                exceptions.InitiatorUnusable) as error:
            raise exceptions.LoginFailed(
                iqn=source.iqn, portal=source.portal,
                reason=error.msg) from None
        disk = self._login(source.iqn, source.portal, deadline)
        self.verify(source, disk)
        return disk

    def relogin(self, iqn: str, portal: str, timeout: float) -> Disk:
        """Import a disk again from its node record, after a reboot.

        Does not check whose disk it is: ``verify`` before using it.

        :param portal: the lender's; if it has just not answered for another
            disk it is not asked
        :raises LoginFailed: also if there is no record
        """
        deadline = time.monotonic() + timeout
        if sessions.find(iqn):
            return self._login(iqn, portal, deadline)
        lender = self._portals[portal]
        # The same words whoever has tried: what changes is logged again.
        silent = exceptions.LoginFailed(
            iqn=iqn, portal=portal, reason='it does not answer')
        with lender.turns:
            if lender.silent_until is not None:
                if time.monotonic() < lender.silent_until:
                    raise silent
                # One asks, for all.
                lender.silent_until = time.monotonic() + LOGIN_SECONDS
            try:
                disk = self._login(iqn, portal, deadline)
            except exceptions.LoginFailed as error:
                if _unanswered(error.__cause__):
                    lender.silent_until = time.monotonic() + SILENT_SECONDS
                    raise silent from error
                if not isinstance(error.__cause__, exceptions.NotBegun):
                    lender.silent_until = None
                raise
            lender.silent_until = None
            return disk

    @reads
    def silent(self, portal: str) -> bool:
        """Whether a lender has not answered the last ``relogin``."""
        return self._portals[portal].silent_until is not None

    @reads
    def verify(self, source: Source, disk: Disk) -> None:
        """Ask the disk itself whether it is the source's.

        :raises SourceMismatch: if serial, size, block size or write
            protection differ, if the kernel's idea of the size is outdated,
            or if ``disk`` is not this session's disk any more
        :raises CommandFailed, CommandTimeout: if it does not answer
        """
        found = iscsi.identity(source.iqn, disk.devnum, VERIFY_SECONDS)
        wanted = {'serial': source.serial, 'size': int(source.size),
                  'block_size': source.block_size, 'readonly': True}
        for name, value in wanted.items():
            if found[name] != value:
                raise exceptions.SourceMismatch(
                    iqn=source.iqn,
                    reason=f'{name} is {found[name]}, not {value}')
        known = sessions.size(disk)
        if known != source.size:
            raise exceptions.SourceMismatch(
                iqn=source.iqn,
                reason=f'the kernel takes it for {known} bytes long')

    def revive(self, iqn: str, disk: Disk) -> Disk:
        """Let I/O flow to a disk that the kernel has given up.

        It does so when a command has failed and the lender does not answer a
        reset (``scsi_eh_offline_sdevs`` in drivers/scsi/scsi_error.c), and
        leaves it so when the session is back. Whose disk it is has to be
        verified.

        :returns: the disk as it is then
        :raises SourceMismatch: if the session has another disk now
        :raises CommandFailed: if the kernel refuses
        """
        iscsi.set_running(iqn, disk.devnum)
        return self.disk(iqn) or disk

    def logout(self, iqn: str) -> None:
        """End the session and forget the target. Idempotent.

        Nothing may use the disk any more. Bounded also with the lender away.

        :raises InitiatorUnusable: see ``disconnect``; the node record is kept
            then
        """
        self.disconnect(iqn)
        iscsi.delete_record(iqn)

    def disconnect(self, iqn: str) -> None:
        """End the session; ``relogin`` brings it back. Idempotent.

        :raises InitiatorUnusable: if the session cannot be ended now, try
            again later. That happens after iscsid was restarted while the
            lender was away: it refuses until the lender has answered once.
        """
        reason = 'its session did not end'
        try:
            iscsi.logout(iqn, LOGOUT_SECONDS)
        except (exceptions.CommandFailed,
                exceptions.CommandTimeout) as error:
            reason = error.msg
        if not self._gone(iqn, time.monotonic() + GONE_SECONDS):
            raise exceptions.InitiatorUnusable(
                reason=f'cannot log out of {iqn}: {reason}')

    def _login(self, iqn: str, portal: str, deadline: float) -> Disk:
        reason = 'the session shows no disk'
        if not sessions.find(iqn):
            try:
                iscsi.login(iqn, max(LOGIN_SECONDS,
                                     deadline - time.monotonic()))
            except (exceptions.CommandFailed,
                    exceptions.CommandTimeout) as error:
                raise exceptions.LoginFailed(
                    iqn=iqn, portal=portal, reason=error.msg) from error
        rescan_at = time.monotonic() + RESCAN_SECONDS
        while True:
            session = sessions.find(iqn)
            if not session:
                reason = 'the session ended'
                break
            if session.disk and session.disk.state == sessions.LOGGED_IN:
                return session.disk
            if session.state != sessions.LOGGED_IN or session.disk:
                state = session.disk.state if session.disk else session.state
                reason = f'the session is {state}'
            elif time.monotonic() > rescan_at:
                self._rescan(iqn)
                rescan_at = math.inf
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        raise exceptions.LoginFailed(iqn=iqn, portal=portal, reason=reason)

    @staticmethod
    def _rescan(iqn: str) -> None:
        try:
            iscsi.rescan(iqn, RESCAN_SECONDS)
        except (exceptions.CommandFailed,
                exceptions.CommandTimeout) as error:
            # The disk that does not come is the error.
            LOG.warning('Scan for the disk of %s: %s', iqn, error.msg)

    @staticmethod
    def _gone(iqn: str, deadline: float) -> bool:
        while sessions.find(iqn):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True


def _unanswered(error: BaseException | None) -> bool:
    """Whether a login failed because nobody is there."""
    if isinstance(error, (exceptions.NotBegun, exceptions.HelperEnded)):
        # Nobody was asked, or nobody of this node was there to hear it.
        return False
    return isinstance(error, exceptions.CommandTimeout) or (
        isinstance(error, exceptions.CommandFailed)
        and _NO_ANSWER.search(error.msg) is not None)
