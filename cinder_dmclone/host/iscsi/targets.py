# SPDX-License-Identifier: Apache-2.0
"""Devices of this node that others may reach: iSCSI targets of LIO."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import socket
import time
from typing import Iterable

from cinder_dmclone import exceptions
from cinder_dmclone.marks import reads
from cinder_dmclone.privileged import lio
from cinder_dmclone.sysfs import portals

# How often, and how many seconds apart, a port is looked at: LIO closes it a
# moment after its portal is gone.
_LOOKS, _PAUSE = 5, 0.5


@dataclasses.dataclass(frozen=True)
class Grant:
    """Who may log in to a target."""

    initiator: str
    user: str
    password: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Export:
    """A target as it should be.

    :ivar device: /dev/mapper path of a linear of ours ('loan', 'view' or
        'serve'): LIO claims it exclusively
    :ivar serial: unit serial number: the uuid of the exported LV, of the one
        that a server knows the volume as, or what it is read as
    """

    iqn: str
    device: str
    serial: str
    readonly: bool
    grants: tuple[Grant, ...]


@dataclasses.dataclass(frozen=True)
class ExportState:
    """A target as it is, perhaps half-made.

    :ivar device: '' if there is no storage object
    :ivar initiators: those with access
    :ivar sessions: initiators that are logged in
    """

    iqn: str
    device: str
    serial: str
    initiators: frozenset[str]
    enabled: bool
    sessions: frozenset[str]


class Targets:
    """Exports devices on one portal. Keeps no state: configfs has it all."""

    def __init__(self, ip: str, port: int) -> None:
        self.ip = ip
        self.port = port

    @property
    def portal(self) -> str:
        """Where others find the targets: 'ip:port'."""
        host = f'[{self.ip}]' if ':' in self.ip else self.ip
        return f'{host}:{self.port}'

    def check(self) -> None:
        """Make sure that exporting is possible, and ``load``.

        :raises TargetUnusable: with a reason of one line
        """
        try:
            ipaddress.ip_address(self.ip)
        except ValueError:
            raise exceptions.TargetUnusable(
                reason=f'{self.ip} is no IP address, and neither LIO nor '
                       'open-iscsi takes a name') from None
        family = socket.AF_INET6 if ':' in self.ip else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((self.ip, 0))
        except OSError as error:
            raise exceptions.TargetUnusable(
                reason=f'{self.ip} is not an address of this node '
                       f'({error.strerror})') from None
        self.load()
        for _ in range(_LOOKS):
            if not self._is_taken(family):
                return
            time.sleep(_PAUSE)
        raise exceptions.TargetUnusable(
            reason=f'something else listens at {self.portal}, as tgt does: '
                   'stop it (ss -ltnp says what it is), or set target_port')

    def _is_taken(self, family: socket.AddressFamily) -> bool:
        """Whether anything but LIO listens where we would."""
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Connections that have ended do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.ip, self.port))
            except OSError as error:
                return (error.errno == errno.EADDRINUSE
                        and not portals.listens(self.portal))
        return False

    @reads
    def load(self) -> None:
        """Load what exporting needs of the kernel; idempotent.

        A machine that has just booted has none of it.

        :raises TargetUnusable: with a reason of one line
        """
        try:
            lio.load()
        except (exceptions.CommandFailed,
                exceptions.CommandTimeout) as error:
            raise exceptions.TargetUnusable(reason=error.msg) from None

    @reads
    def list(self, lv: str = '', iqns: Iterable[str] = ()
             ) -> dict[str, ExportState]:
        """Every target of ours by IQN, and what is left of such ones.

        :param lv: only those of this LV's devices, by its uuid
        :param iqns: targets that are this LV's although no device says so
        """
        found = {}
        for state in lio.list_exports(lv, [*iqns]):
            state['initiators'] = frozenset(state['initiators'])
            state['sessions'] = frozenset(state['sessions'])
            found[state['iqn']] = ExportState(**state)
        return found

    def ensure(self, export: Export) -> None:
        """Make this export exist exactly like this.

        Idempotent: what is right is left alone with its sessions; the rest
        is repaired, or built anew if it shows another device.

        :raises TargetUnusable: if the kernel refuses
        :raises TargetStuck: if it takes too long
        """
        grants = [(grant.initiator, grant.user, grant.password)
                  for grant in export.grants]
        try:
            lio.ensure(export.iqn, export.device, export.serial,
                       export.readonly, grants, self.ip, self.port)
        except exceptions.CommandTimeout:
            raise self._stuck() from None

    def remove(self, iqn: str) -> None:
        """End the target's sessions and remove it and its storage object.

        Idempotent. The device is free for removal afterwards.

        :raises TargetUnusable: if the kernel refuses
        :raises TargetStuck: if it takes too long, as it does while a command
            of the initiator is stuck in the device
        """
        try:
            lio.remove(iqn)
        except exceptions.CommandTimeout:
            raise self._stuck() from None

    def revoke(self, iqn: str, initiator: str) -> None:
        """End an initiator's session and refuse its next login.

        :raises TargetUnusable: like ``remove``
        """
        try:
            lio.revoke(iqn, initiator)
        except exceptions.CommandTimeout:
            raise self._stuck() from None

    @staticmethod
    def _stuck() -> exceptions.TargetStuck:
        return exceptions.TargetStuck(
            reason=f'the change did not end within {lio.CHANGE_SECONDS} '
                   f'seconds, a command may be stuck in a device')
