# SPDX-License-Identifier: Apache-2.0
"""Cinder's notifications about moves.

Sending one waits for the message bus, for ever by default
(``[oslo_messaging_notifications] retry``), and reads what moves from the
database. So a thread of their own sends them, one after the other; it lives
as long as there are any. What it has not sent when the process ends is lost,
as with all of Cinder's.
"""

from __future__ import annotations

import collections
import threading
import typing

from cinder import context as cinder_context
from cinder import objects
from cinder import utils
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_log import log as logging

from cinder_dmclone.events import moves
from cinder_dmclone.location import NodeName

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

# So many wait while the bus is away; further ones are lost.
MOST = 1000

_Waiting = tuple[moves.What, moves.Move, str]


class Sender:
    """The notifications of one backend of this node."""

    def __init__(self, node: NodeName,
                 spawn: typing.Callable[[typing.Callable[[], None]], None]
                 | None = None) -> None:
        """
        :param node: ``host@backend``, which sends them
        :param spawn: runs a function beside the caller
        """
        self._node = node
        self._spawn = spawn or _spawn
        self._guard = threading.Lock()
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._sending = False

    def __call__(self, what: moves.What, move: moves.Move,
                 reason: str) -> None:
        """Have it sent, if the operator wants notifications at all.

        :raises RuntimeError: if there is no thread; the next one sends it too
        """
        if not utils.notifications_enabled(CONF):
            return
        with self._guard:
            if len(self._waiting) >= MOST:
                LOG.warning('%(moved)s: no notification (%(what)s) is sent, '
                            '%(most)s others wait.',
                            {'moved': move, 'what': what.value, 'most': MOST})
                return
            self._waiting.append((what, move, reason))
            if self._sending:
                return
            self._sending = True
        try:
            self._spawn(self._send_all)
        except Exception:
            with self._guard:
                self._sending = False
            raise

    def _send_all(self) -> None:
        while waiting := self._next():
            try:
                self._send(*waiting)
            except Exception as error:
                what, move, _ = waiting
                LOG.warning('%(moved)s: no notification (%(what)s) is sent: '
                            '%(error)s', {'moved': move, 'what': what.value,
                                          'error': error})

    def _next(self) -> _Waiting | None:
        with self._guard:
            if self._waiting:
                return self._waiting.popleft()
            self._sending = False
            return None

    def _send(self, what: moves.What, move: moves.Move, reason: str) -> None:
        context = cinder_context.get_admin_context()
        suffix = f'dmclone.relocate.{what.value}'
        more = {'source_host': move.source, 'target_host': move.target,
                'generation': move.generation}
        if reason:
            more['reason'] = reason
        if move.snapshot:
            volume_utils.notify_about_snapshot_usage(
                context, objects.Snapshot.get_by_id(context, move.snapshot),
                suffix, extra_usage_info=more, host=self._node)
        else:
            volume_utils.notify_about_volume_usage(
                context, objects.Volume.get_by_id(context, move.volume),
                suffix, extra_usage_info=more, host=self._node)


def _spawn(function: typing.Callable[[], None]) -> None:
    threading.Thread(target=function, daemon=True,
                     name='dmclone-notifications').start()
