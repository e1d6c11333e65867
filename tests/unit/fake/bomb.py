# SPDX-License-Identifier: Apache-2.0
"""A crash at one change of many."""

from __future__ import annotations

import typing

from tests.unit.fake import ports


class Bomb:
    """Crashes a node, once, at the change before which there were so many.

    :ivar where: the change, if there was one
    """

    def __init__(self, crash: typing.Callable[[], None], at: int,
                 of: tuple[str, ...] = (), by: str | None = None) -> None:
        """
        :param of: the ports whose changes count; all if there are none
        :param by: the node whose changes count; anybody's if there is none
        """
        self._crash = crash
        self._left = at
        self._ports = of
        self._node = by
        self.where: str | None = None

    def __call__(self, call: ports.Call) -> None:
        if call.reads or self.where or (
                self._ports and call.port not in self._ports) or (
                self._node and call.node != self._node):
            return
        if not self._left:
            self.where = str(call)
            self._crash()
        self._left -= 1
