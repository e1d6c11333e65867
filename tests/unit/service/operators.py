# SPDX-License-Identifier: Apache-2.0
"""A test in which an operator decides what no node may decide by itself."""

from __future__ import annotations

import contextlib
import typing
from unittest import mock

from cinder_dmclone import exceptions
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports


class OperatorTestCase(base.CloudTestCase):
    """Nodes can be lost.

    :cvar refusal: what is said when nothing is done, a regular expression
    """

    refusal = '.*'

    def setUp(self) -> None:
        super().setUp()
        self.down: set[str] = set()
        self.enterContext(mock.patch.object(
            ports.Peers, 'is_up', lambda peers, node: node not in self.down))

    def lose(self, node: cloud.Node) -> None:
        """It loses its power, and has not reported in for long."""
        node.lose_power()
        self.down.add(node.name)

    def state(self) -> object:
        """The row, and what each node's disks have."""
        return self.cloud.row(self.volume), [
            {name: (sorted(lv.tags), lv.size)
             for name, lv in node.group.volumes.items()}
            for node in self.cloud.nodes.values()]

    @contextlib.contextmanager
    def refused(self, why: str) -> typing.Iterator[None]:
        """A request is refused in a line, and changes nothing."""
        before = self.state()
        with self.assertRaisesRegex(exceptions.PeerRefused, why) as caught:
            yield
        # A dot is no end of a line.
        self.assertRegex(caught.exception.msg, rf'^.*{self.refusal}\Z')
        self.assertEqual(before, self.state())
