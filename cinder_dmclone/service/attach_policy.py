# SPDX-License-Identifier: Apache-2.0
"""Who is asking for a volume, and how it is served: a pure decision."""

from __future__ import annotations

import dataclasses
import enum
import typing

from cinder.objects.fields import VolumeStatus

from cinder_dmclone.database.attachment import Attachment
from cinder_dmclone.database import rows
from cinder_dmclone.location import host_of
from cinder_dmclone.location import NodeName


class How(enum.Enum):
    """The ways to serve a connection."""

    FRONT = 'a server on this node'
    LOCAL = "this node's own services: backup, image copy, migration"
    RELOCATE = 'a server on a peer: the volume moves there'
    LIVE = 'a server that is live-migrated to a peer'
    ISCSI = 'anybody else, in place over iSCSI'
    REFUSE = 'not at all'


@dataclasses.dataclass(frozen=True)
class Placement:
    """How to serve; for a relocation the attachment and the peer."""

    how: How
    attachment: str | None = None
    peer: NodeName | None = None
    why: str = ''

    @property
    def purpose(self) -> rows.Purpose:
        """Why a volume moves that is served where it is not yet."""
        assert self.attachment is not None
        kind = (rows.LiveMigration if self.how is How.LIVE
                else rows.ForAttachment)
        return kind(self.attachment)


def place(row: rows.Row, connector: typing.Mapping[str, typing.Any],
          host: str, peer: NodeName | None, peer_up: bool,
          misnamed: NodeName | None = None) -> Placement:
    """How a connector is served by the volume's home node on ``host``.

    A volume moves only for a server: an attachment that waits for this
    connector, in a volume that nothing else works on; while something does, a
    server on a peer is refused: served over iSCSI it could not be
    live-migrated later. While Cinder migrates it, nobody gets it whom an
    attachment is for: what he wrote might stay behind. One that several
    servers have, or wait for, stays and is served from where it is. Backups,
    image copies, generic migration and Glance are told apart by their not
    having such an attachment (a connector's host alone says nothing, they run
    on compute nodes too).

    :param peer: the node on the connector's host, if it has this backend
    :param misnamed: if there is none, the node that the connector's initiator
        is on: its host has another name in Nova
    """
    asking = connector.get('host')
    waiting = _waiting(row, asking)
    # Who connects while it is transferred would stay logged in.
    broken = row.status.startswith('error') or (
        row.status == VolumeStatus.AWAITING_TRANSFER)
    # One that has a connector may have been set back by a request that
    # Cinder's manager carries out twice, and is not the one then.
    unanswered = [a for a in row.attachments
                  if a.asked_for and not a.connected]
    if unanswered and row.being_migrated:
        return Placement(
            How.REFUSE, why=f'the attachment {unanswered[0].id} waits for it, '
            f'and {row.until_migrated}')
    late = '' if waiting else _late(row, asking, host)
    if late:
        return Placement(How.REFUSE, why=late)
    if asking == host:
        if unanswered and not row.shared and _may_have_moved(row):
            return Placement(How.REFUSE, why=_not_ended(row, host))
        # Who waits while it is made waits for that (a rebuild of Nova's).
        attached = row.status not in rows.BEING_MADE and (
            waiting or any(a.host == host for a in row.attachments))
        if attached or not broken:
            return Placement(How.FRONT if attached else How.LOCAL)
    if broken:
        return Placement(How.REFUSE, why=f'its status is {row.status}')
    if waiting is not None and waiting.instance is not None and (
            unanswered or not waiting.over_iscsi):
        if peer:
            found = _for_server(row, waiting, peer, peer_up, host)
            if found.how is not How.ISCSI:
                return found
        elif misnamed and not _own_service(row, misnamed, host):
            return Placement(How.REFUSE, why=_two_names(asking, misnamed))
    if not connector.get('initiator'):
        return Placement(How.REFUSE, why=_unreached(asking, peer))
    return Placement(How.ISCSI)


def _late(row: rows.Row, asking: str | None, host: str) -> str:
    """Why a request that no attachment waits for is a late one; '' if not.

    Cinder's manager would set the attachment back to attaching. It carries out
    an image copy late as well, with this node's own connector, over what a
    server wrote since. Who asks without attachments (``os-reserve``, as Ironic
    does) makes the volume attaching first; one that is made only to be copied
    is in use, and has none (``_revert_to_snapshot_generic``).
    """
    if row.status not in rows.ATTACH_STATUSES or not row.attachments:
        return ''
    complete = [a.id for a in row.attachments if a.connected and a.attached
                and (a.host == asking or asking == host)]
    if complete:
        return (f'its attachment {complete[0]} is complete, and no other '
                'waits for it')
    if row.status == VolumeStatus.ATTACHING or not any(
            a.connected for a in row.attachments):
        # Attachments of the old API have no connector (``attach_volume`` of
        # VolumeManager); Nova asks for those again after a reboot.
        return ''
    return 'no attachment waits for it'


def _may_have_moved(row: rows.Row) -> bool:
    """Whether a server of the volume's node may be where it was to migrate.

    With its first write the volume comes to it, from under anybody who has
    been given it here since.
    """
    return bool(row.migration and row.migration.attached)


def _not_ended(row: rows.Row, host: str) -> str:
    assert row.offer and row.migration
    here, there = row.connected_at(host)[0], row.migration
    return (f'its server was live-migrated to {row.offer.node}, and one of '
            f'its attachments was not deleted after that: delete {here.id} '
            f'if the server is on {host_of(row.offer.node)} now, {there.id} '
            'if it is not (openstack volume attachment delete), and try again')


def _unreached(asking: str | None, peer: NodeName | None) -> str:
    why = ('several servers have it, or wait for it' if peer else
           f'host {asking} has no cinder-volume service of this backend')
    return f'{why}, and its connector names no iSCSI initiator'


def only_reads(row: rows.Row) -> bool:
    """Whether who connects, and whom no attachment is for, only reads.

    A volume in use is backed up by a snapshot of its own
    (``backup_use_temp_snapshot``).
    """
    return row.is_read and not row.attachments


def mixes(how: How, row: rows.Row, host: str, here: bool,
          elsewhere: bool) -> str:
    """Why a server cannot have a volume that hydrates; '' if it can.

    For one whose lender is on another node. The servers of such are either on
    its node or all elsewhere. With the lender away, reads of what has not
    arrived wait for those, and must not wait for these in the iSCSI target:
    nobody could log in to any of the node's.

    :param here: whether a server on the volume's node has been given it
    :param elsewhere: whether it is served over iSCSI
    """
    if not row.multiattach:
        # Its only server is live-migrated, or an end has left something.
        here = here and bool(row.connected_at(host))
        elsewhere = elsewhere and any(
            a.connected and a.host != host for a in row.attachments)
    where = {How.FRONT: 'over iSCSI' * (elsewhere and not here),
             How.ISCSI: 'on this node' * (here and not elsewhere)}.get(how)
    if not where:
        return ''
    return (f'it hydrates, and a server has it {where}: try again when it has '
            'hydrated (cinder-dmclone status shows how far that is)')


def goes_on(row: rows.Row, connector: typing.Mapping[str, typing.Any],
            host: str) -> bool:
    """Whether others need what one of the attachments was given.

    Cinder ends connections by their connector. Who waits may have got his
    answer already, which the manager has yet to write down: the reconciler
    takes away what nobody needs then.

    :param connector: that of an attachment that ends
    """
    asking = connector.get('host')
    if asking == host:
        same = row.connected_at(host)
    else:
        initiator = (connector.get('initiator') or '').lower()
        same = tuple(a for a in row.attachments
                     if a.connected and a.host != host
                     and a.initiator == initiator)
    servers = {a.instance for a in same}
    return len(same) > 1 or row.multiattach and any(
        not a.connected and a.instance not in servers
        for a in row.attachments)


def without_moving(found: Placement,
                   connector: typing.Mapping[str, typing.Any],
                   serves: bool) -> Placement:
    """How a server is served to whose node the volume cannot move.

    In place only if the operator chose that, and never one that is
    live-migrated: it has the volume as a local device.

    :param found: what ``place`` said
    """
    if serves and found.how is How.RELOCATE and connector.get('initiator'):
        return Placement(How.ISCSI)
    return Placement(How.REFUSE, why=f'it cannot move to {found.peer}')


def _waiting(row: rows.Row, asking: str | None) -> Attachment | None:
    """The attachment this request is for."""
    fits = [a for a in row.attachments
            if (not a.connected or a.host == asking)
            and a.asked_for]
    # A retry finds its own connector already written down.
    fits.sort(key=lambda a: not a.connected)
    return fits[0] if fits else None


def _for_server(row: rows.Row, waiting: Attachment, peer: NodeName,
                peer_up: bool, host: str) -> Placement:
    busy = _busy(row)
    if busy:
        return Placement(
            How.REFUSE, why=f'the attachment {waiting.id} of a server on '
            f'{peer} waits for it, and {busy}')
    others = [a for a in row.attachments if a.id != waiting.id
              and not _left_behind(a, waiting)]
    live = bool(others) and _migrates(others, waiting, host)
    if others and not live and row.multiattach:
        return Placement(How.ISCSI)
    if others and not live:
        return Placement(How.REFUSE, why=_occupied(others, waiting, host))
    if not peer_up:
        return Placement(
            How.REFUSE, why=f'the cinder-volume service of {peer} is down; '
            'the volume stays where it is')
    return Placement(How.LIVE if live else How.RELOCATE,
                     attachment=waiting.id, peer=peer)


def _own_service(row: rows.Row, misnamed: NodeName, host: str) -> bool:
    """Whether the volume's node asks for itself, though a server waits.

    A server's disk is made anew from an image like this. With
    ``backend_host`` Cinder's own connectors have another name than the node.
    """
    return host_of(misnamed) == host and _busy(row) is not None


def _two_names(asking: str | None, misnamed: NodeName) -> str:
    name = host_of(misnamed)
    return (f'a server on host {asking} asks for it, whose iSCSI initiator is '
            f'that of node {misnamed}. One host has two names: make host in '
            f'[DEFAULT] of nova.conf ({asking} now) and host in [DEFAULT] of '
            f'cinder.conf ({name} now) the same there, see "Nova" on the page '
            '"Installation" of the documentation')


def _busy(row: rows.Row) -> str | None:
    """What works on the volume, so that no server elsewhere can have it."""
    if row.status not in rows.ATTACH_STATUSES:
        return f'its status is {row.status}: try again when that has ended'
    if row.migration_status not in rows.SETTLED_MIGRATION:
        return row.until_migrated
    return None


def _occupied(others: list[Attachment], waiting: Attachment,
              host: str) -> str:
    """Which other attachment is in the way, and what to do about it."""
    # The one at home is not what a failed try left elsewhere.
    other = min(others, key=lambda a: (a.host == host, a.attached))
    if (len(others) == 1 and other.attached
            and other.instance == waiting.instance):
        return (f'its server has it on {other.host} over iSCSI from here '
                f'(attachment {other.id}), which cannot move with the server: '
                'stop the server, detach the volume and attach it anew')
    return (f'it has another attachment ({other.id}, '
            f'{other.host or "reserved"}). If no server uses that one, '
            'delete it (openstack volume attachment delete) and try again')


def _migrates(others: list[Attachment], waiting: Attachment,
              host: str) -> bool:
    """Whether the server that waits is the one that has the volume here."""
    return (len(others) == 1 and others[0].host == host
            and others[0].instance == waiting.instance)


def _left_behind(other: Attachment, waiting: Attachment) -> bool:
    """Whether an attachment may remain of an earlier try for the server.

    Cinder leaves one when the request for it fails (``API.attachment_create``)
    or its answer is lost: Nova makes another one, and knows that alone.
    """
    return not other.given and other.instance == waiting.instance
