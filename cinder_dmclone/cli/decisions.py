# SPDX-License-Identifier: Apache-2.0
"""Commands by which an operator decides what no node may decide by itself.

The node that has what is left is asked for a plan, which is shown; with
``--yes`` it is asked to carry that very plan out. It checks everything itself,
under the volume's lock.
"""

from __future__ import annotations

import argparse
from concurrent import futures
import threading
import typing

from cinder import rpc
from oslo_config import cfg
import oslo_messaging as messaging

from cinder_dmclone.cli.errors import fail
from cinder_dmclone.cli.errors import UNCHANGED
from cinder_dmclone.database import changes
from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import foreign
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.snapshot_messages import MoveSnapshot
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.world import World

CONF = cfg.CONF

# Seconds for a message bus that is away, beyond those of the answer.
_BUS_SECONDS = 5.0
_INIT = threading.Lock()

_Request = (messages.TakeBack | messages.GiveUp | messages.Forget
            | messages.Release | messages.Undo | MoveSnapshot)
# Whom to ask for it, and the request but for its record.
_Asked = tuple[World, NodeName, typing.Callable[[str], _Request]]


class CannotAsk(Exception):
    """Why nobody was asked, in one line; nothing was changed."""


# What keeps a command from being done or told.
FAILURES = (CannotAsk, exceptions.DMCloneException, *changes.AWAY)


def run(arguments: argparse.Namespace, worlds: typing.Sequence[World]) -> int:
    """Show what would be done, and with ``--yes`` have it done.

    :returns: 0, 1 if a node refuses, 2 if it could not be asked
    """
    try:
        find = (_UNDO if getattr(arguments, 'undo', False) else _FIND)[
            arguments.command]
        world, node, request = find(arguments, worlds)
        require_up(world, node)
        plan = ask(world, node, request(''))
    except exceptions.PeerRefused as error:
        return fail(error.msg, 1)
    except FAILURES as error:
        return fail(f'{said(error)}. {UNCHANGED}')
    print(plan.does, *(f'gives up: {lost}' for lost in plan.gives_up),
          sep='\n')
    if arguments.yes:
        return _carry_out(world, node, request(plan.record))
    print(f'{UNCHANGED} With --yes it is done.')
    return 0


def _carry_out(world: World, node: NodeName,
               request: _Request) -> int:
    try:
        ask(world, node, request)
    except exceptions.PeerRefused as error:
        return fail(error.msg, 1)
    except exceptions.PeerUnreachable as error:
        return fail(f'{said(error)}. Whether it was done is not known: run '
                    'the command again')
    begun = isinstance(request, MoveSnapshot) and (
        request.peer != node)
    print('Begun: "cinder-dmclone status" there shows how far it is.'
          if begun else 'Done.')
    return 0


def _find(volume: VolumeId,
          worlds: typing.Sequence[World]) -> tuple[World, rows.Row]:
    """The backend of a volume, as this node has it, and its row."""
    row = worlds[0].rows.get(volume)
    if row is None or row.deleted:
        raise CannotAsk(f'the database has no volume {volume}')
    if row.unreadable:
        raise CannotAsk(f'volume {volume}: {row.unreadable}')
    for world in worlds:
        if row.node and not foreign(row.node, world.settings.node):
            return world, row
    raise CannotAsk(f'volume {volume} is on {row.node or "no node"}, of which '
                    'backend this node is none')


def _recover(arguments: argparse.Namespace,
             worlds: typing.Sequence[World]) -> _Asked:
    world, row = _find(VolumeId(arguments.of), worlds)
    # What is cut borrows on its own node; who has lent to that is not known.
    node = (row.source.node if row.source and row.source.node != row.node
            else world.settings.node)
    return world, node, lambda record: messages.TakeBack(row.id, record)


def _give_up(arguments: argparse.Namespace,
             worlds: typing.Sequence[World]) -> _Asked:
    world, row = _find(VolumeId(arguments.of), worlds)
    return world, row.node, lambda record: messages.GiveUp(row.id, record)


def _forget(arguments: argparse.Namespace,
            worlds: typing.Sequence[World]) -> _Asked:
    lv = LvUuid(arguments.of)
    world = with_lv(lv, worlds)
    return world, world.settings.node, (
        lambda record: messages.Forget(lv, record))


def _release(arguments: argparse.Namespace,
             worlds: typing.Sequence[World]) -> _Asked:
    lv = LvUuid(arguments.of)
    world = with_lv(lv, worlds)
    return world, world.settings.node, (
        lambda record: messages.Release(lv, record))


def _move_snapshot(arguments: argparse.Namespace,
                   worlds: typing.Sequence[World]) -> _Asked:
    row = worlds[0].snapshots.get(SnapshotId(arguments.of))
    if row is None or row.deleted:
        raise CannotAsk(f'the database has no snapshot {arguments.of}')
    if row.unreadable:
        raise CannotAsk(f'snapshot {row.id}: {row.unreadable}')
    if row.at is None:
        raise CannotAsk(f'snapshot {row.id} is on no node')
    node = row.at.node
    for world in worlds:
        if not foreign(node, world.settings.node):
            peer = NodeName(
                arguments.node if '@' in arguments.node
                else f'{arguments.node}@{world.settings.backend}')
            return world, node, lambda record: MoveSnapshot(
                row.volume, row.id, peer, record)
    raise CannotAsk(f'snapshot {row.id} is on {node}, of which backend this '
                    'node is none')


def _keep(arguments: argparse.Namespace,
          worlds: typing.Sequence[World]) -> _Asked:
    lv = LvUuid(arguments.of)
    world = with_lv(lv, worlds)
    return world, world.settings.node, (
        lambda record: messages.Undo(lv, lv_tags.ForgottenTag.kind, record))


def _wait_again(arguments: argparse.Namespace,
                worlds: typing.Sequence[World]) -> _Asked:
    world, row = _find(VolumeId(arguments.of), worlds)
    return world, row.node, lambda record: messages.Undo(
        row.lv, lv_tags.LostTag.kind, record)


def with_lv(lv: LvUuid, worlds: typing.Sequence[World]) -> World:
    """The backend of this node that has an LV.

    :raises CannotAsk: if none has; it names the groups that may have it
    """
    name = names.data_lv(lv)
    unread: list[str] = []
    for world in worlds:
        try:
            if name in world.host.group.report(patient=True).lvs:
                return world
        except exceptions.DMCloneException as error:
            unread.append(f'{world.settings.node}: {said(error)}')
    raise CannotAsk(f'this node has no LV {name}' + (
        f' that can be read: {"; ".join(unread)}' if unread else ''))


_Find = typing.Callable[[argparse.Namespace, typing.Sequence[World]], _Asked]
_FIND: dict[str, _Find] = {
    'forget': _forget, 'give-up': _give_up, 'move-snapshot': _move_snapshot,
    'recover': _recover, 'release': _release}
_UNDO: dict[str, _Find] = {'forget': _keep, 'give-up': _wait_again}
COMMANDS = frozenset(_FIND)


def require_up(world: World, node: NodeName) -> None:
    """
    :raises CannotAsk: if the node does not report in
    """
    if not world.peers.is_up(node):
        raise CannotAsk(f'cinder-volume of {node}, which has to do it, is '
                        'down: start it')


def ask(world: World, node: NodeName,
        request: messages.Request[messages.Answer]) -> messages.Answer:
    """Ask a node; a message bus that is away lets nobody wait for ever.

    :raises PeerRefused, PeerUnreachable: see ``Peers.ask``
    """
    asked: futures.Future[messages.Answer] = futures.Future()

    def put() -> None:
        try:
            with _INIT:
                if not rpc.initialized():
                    rpc.init(CONF)
            asked.set_result(world.peers.ask(node, request))
        except Exception as error:
            asked.set_exception(error)
    threading.Thread(target=put, daemon=True).start()
    try:
        return asked.result(_BUS_SECONDS + request.timeout(
            CONF.rpc_response_timeout))
    except (futures.TimeoutError, messaging.MessagingException) as error:
        raise exceptions.PeerUnreachable(
            node=node, what=type(request).__name__, reason='the message bus '
            f'does not answer ({type(error).__name__})') from error


def said(error: Exception) -> str:
    """What is the matter, in one line without its end."""
    if isinstance(error, (exceptions.DatabaseAway, *changes.AWAY)):
        # What follows is a link to SQLAlchemy's manual.
        why, *_ = str(getattr(error, 'kwargs', {}).get(
            'reason', error)).splitlines()
        return f'the database does not answer: {why}'
    return str(error).rstrip('.')
