# SPDX-License-Identifier: Apache-2.0
"""A test with a cloud of two nodes, and what must hold in the end."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import typing
import unittest

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from tests.unit.fake import cloud
from tests.unit.fake import ports

# tools/test --long: more of the crashes.
LONG = bool(os.environ.get('DMCLONE_LONG'))
REGIONS = 8
DATA = [f'written on a: {region}' for region in range(REGIONS)]


class TestCase(unittest.TestCase):
    """Nothing may have complained when a test ends."""

    def setUp(self) -> None:
        super().setUp()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def folder(self) -> str:
        """A directory that goes with the test."""
        return self.enterContext(tempfile.TemporaryDirectory())

    def run_with_config(self, config: str, program: str, *words: str,
                        under: typing.Sequence[str] = ()
                        ) -> subprocess.CompletedProcess[str]:
        """Run a program in a process of its own: options are global.

        :param config: a cinder.conf, in which {state} is a directory
        :param under: a command that runs it
        """
        state = self.folder()
        path = os.path.join(state, 'cinder.conf')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(config.format(state=state))
        return subprocess.run(
            [*under, sys.executable, '-W', 'ignore', '-c', program,
             '--config-file', path, *words], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class CloudTestCase(TestCase):
    """Nodes a and b, and a volume full of ``DATA`` on a."""

    hosts: typing.ClassVar[tuple[str, ...]] = ('a', 'b')
    options: typing.Mapping[str, typing.Any] = {}

    def setUp(self) -> None:
        super().setUp()
        self.build()

    def build(self) -> None:
        self.cloud = cloud.Cloud(*self.hosts, **self.options)
        self.addCleanup(self.cloud.db.close)
        self.addCleanup(self.assert_no_complaints)
        self.a, self.b, *self.others = self.cloud.nodes.values()
        self.volume = self.cloud.create(self.a)
        # That which it is made with.
        self.lv = LvUuid(self.volume)
        lv = self.a.group.volumes[names.data_lv(self.lv)]
        lv.blocks = dict(enumerate(DATA))
        lv.flush()

    def relocated(self) -> tuple[str, str]:
        """Attach on b; returns attachment and path."""
        return self.cloud.attach(self.volume, self.b)

    def fates(self, request: str, *fates: ports.Fate) -> None:
        """What becomes of the next messages of a kind."""
        coming, arrives = iter(fates), ports.Fate.ARRIVES
        self.cloud.fate = lambda message: (
            next(coming, arrives) if message.request == request else arrives)

    # -- what must hold -----------------------------------------------------

    def assert_data(self, node: cloud.Node, path: str,
                    data: typing.Sequence[str] = DATA) -> None:
        self.assertEqual(list(data), [node.mapper.read(path, region)
                                      for region in range(len(data))])

    def assert_no_complaints(self) -> None:
        self.assertEqual([], self.cloud.complaints)

    def assert_settled(self, data: typing.Sequence[str] = DATA) -> None:
        """Nothing is in flight, and nothing was left behind."""
        row = self.cloud.row(self.volume)
        self.assertEqual((None, None), (row.source, row.offer), row)
        self.assert_no_complaints()
        home = self.cloud.nodes[row.node]
        for node in self.cloud.nodes.values():
            self.assert_clean(node, {names.data_lv(row.lv)}
                              if node is home else set())
        lv = home.group.volumes[names.data_lv(row.lv)]
        own = lv_tags.print_tag(lv_tags.OwnTag(row.generation, row.id))
        self.assertEqual({own}, lv.tags)
        self.assertEqual(list(data), [lv.read(r) for r in range(len(data))])
        self.assertEqual(list(data), [lv.durable.get(r)
                                      for r in range(len(data))])

    def assert_clean(self, node: cloud.Node, lvs: set[str]) -> None:
        """A node has these LVs and consumers that attachments justify."""
        row = self.cloud.row(self.volume)
        self.assertEqual(lvs, set(node.group.volumes), node.name)
        if node.meta_group is not node.group:
            self.assertEqual({}, node.meta_group.volumes)
        wanted = {str(names.front(node.host, row.lv))
                  for found in row.attachments
                  if lvs and found.connected and found.host == node.host}
        self.assertEqual(wanted, set(node.mapper.mapped), node.name)
        self.assertEqual({}, node.targets.exports, node.name)
        self.assertEqual({}, node.initiator.sessions_, node.name)
        self.assertEqual({}, node.initiator.records_, node.name)

    def assert_unmoved(self, generation: int = 1) -> None:
        """The relocation left no trace; the volume is usable on a."""
        row = self.cloud.row(self.volume)
        self.assertEqual((self.a.name, self.volume, generation),
                         (row.node, row.lv, row.generation))
        self.assert_settled()
        path = self.cloud.connect(
            self.volume, self.cloud.reserve(self.volume), self.a)
        self.assert_data(self.a, path)
