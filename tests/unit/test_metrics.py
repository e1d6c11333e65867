# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, and whether anybody can use it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import os
import pathlib
import re
import typing
from unittest import mock

import prometheus_client
from prometheus_client import parser

from cinder_dmclone.cli import metrics as command
from cinder_dmclone.events import moves
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import status
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.metrics import collector
from cinder_dmclone.stack import state
from tests.unit import base
from tests.unit import migration
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.relocation import test_cut

Labels = frozenset[tuple[str, str]]


def scrape(*nodes: cloud.Node, alone: bool = False
           ) -> dict[str, dict[Labels, float]]:
    """What nodes tell: the value by name and labels.

    :param alone: without cinder-volume
    """
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector.Collector(*(collector.Source(
        node.process.world.host, *(() if alone else (
            node.process.loop.attention, collector.Count())))
        for node in nodes)))
    return parse(prometheus_client.generate_latest(registry).decode())


def parse(text: str) -> dict[str, dict[Labels, float]]:
    """The same, out of what Prometheus is sent."""
    found: dict[str, dict[Labels, float]] = {
        name: {} for name in re.findall(
            rf'(?m)^# TYPE {collector.PREFIX}(\w+)', text)}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name.removeprefix(collector.PREFIX)][
                frozenset(sample.labels.items())] = sample.value
    return found


def labels(**found: str) -> Labels:
    return frozenset({'backend': cloud.BACKEND, **found}.items())


class HydrationTest(base.CloudTestCase):

    def hydrating(self) -> Labels:
        """Let a volume move to b; the labels of its copy there."""
        self.relocated()
        self.cloud.settle(1)
        return labels(volume=self.volume, lender=self.a.name,
                      lv=self.cloud.row(self.volume).lv)

    def test_a_group_for_data_and_metadata_is_told_once(self) -> None:
        """It is known by its name."""
        process = self.a.process
        host = dataclasses.replace(
            process.world.host,
            meta_group=process._port('group', self.a.group))
        registry = prometheus_client.CollectorRegistry()
        registry.register(collector.Collector(collector.Source(host)))
        found = parse(prometheus_client.generate_latest(registry).decode())
        self.assertEqual({labels(role='data'): 1}, found['readable'])

    def test_a_volume_that_hydrates(self) -> None:
        of = self.hydrating()
        found = scrape(self.b)
        size = self.a.group.volumes[f'volume-{self.lv}'].size
        self.assertEqual({of: size}, found['hydration_size_bytes'])
        self.assertEqual({of: 3 * size / base.REGIONS},
                         found['hydration_copied_bytes'])
        self.assertEqual({of: 1}, found['lender_path_up'])
        self.assertEqual([0], list(found['clone_failed'].values()))
        self.assertEqual({}, found['held_writes'])
        for node, role in (self.a, 'lent'), (self.b, 'volume'):
            found = scrape(node)
            self.assertEqual(
                {role: 1.0}, {dict(of)['role']: count for of, count
                              in found['lvs'].items() if count})

    def test_what_waits_for_its_lender_here_is_no_hydration(self) -> None:
        """Nothing of it arrives before its turn, and nothing is wrong."""
        of = self.hydrating()
        test_cut.cut_volume(self.b, self.volume)
        lv = self.cloud.row(self.volume).lv
        self.assertNotEqual(dict(of)['lv'], lv)
        found = scrape(self.b)
        for name in 'hydration_copied_bytes', 'lender_path_up':
            self.assertEqual({of}, set(found[name]), name)

    def test_nothing_is_told_of_volumes_at_rest(self) -> None:
        """Their number is no number of series."""
        for found in scrape(self.a).values():
            self.assertFalse([of for of in found if 'volume' in dict(of)])

    def test_the_lender_is_away(self) -> None:
        of = self.hydrating()
        self.a.lose_power()
        self.assertEqual({of: 0}, scrape(self.b)['lender_path_up'])

    def test_a_clone_that_failed(self) -> None:
        self.hydrating()
        clone, = (found for name, found in self.b.mapper.mapped.items()
                  if '-clone-' in name)
        clone.broken = status.Mode.RO
        found = scrape(self.b)
        self.assertEqual([1], list(found['clone_failed'].values()))

    def test_a_clone_of_which_the_kernel_tells_no_more(self) -> None:
        found: collector.Samples = collections.defaultdict(list)
        stack = state.Stack(self.lv, clone=status.CloneStatus.parse('Fail'))
        collector.add_stacks(found, {self.lv: stack})
        self.assertEqual([((self.lv, self.lv), True)], found['clone_failed'])
        self.assertEqual([], found['hydration_size_bytes'])

    def test_room(self) -> None:
        free = scrape(self.a)['volume_group_free_bytes']
        self.assertEqual({labels(role='data'): self.a.group.report().free},
                         free)

    def needs_a_look(self) -> None:
        lv = f'volume-{self.lv}'
        self.a.group.retag(lv, add=['dmclone.1.own/x/y'],
                           remove=self.a.group.volumes[lv].tags)
        self.a.process.loop.run_once(True)

    def test_what_needed_a_look(self) -> None:
        """It does not any more, and is not at rest for all that."""
        lv = self.a.group.volumes[f'volume-{self.lv}']
        tags = set(lv.tags)
        # Cinder deletes it; it is about to be attached.
        for at in 'deleting', 'reserved':
            self.cloud.reserve(self.volume)
            self.needs_a_look()
            self.assertEqual({labels(): 1}, scrape(self.a)['attention'])
            self.cloud.db.update(self.volume, status=at)
            self.a.group.retag(lv.name, add=tags, remove=lv.tags)
            self.a.process.loop.run_once(True)
            self.assertEqual({labels(): 0}, scrape(self.a)['attention'])

    def test_what_needs_a_look(self) -> None:
        self.needs_a_look()
        self.assertEqual({labels(): 1}, scrape(self.a)['attention'])
        self.assertEqual({}, scrape(self.a, alone=True)['attention'])
        self.assertEqual(1, scrape(self.a)['lvs'][labels(role='unreadable')])

    def test_a_scrape_reads_this_node_and_changes_nothing(self) -> None:
        self.hydrating()
        self.cloud.calls.clear()
        self.cloud.db.statements.clear()
        scrape(self.b)
        self.assertEqual([], [call for call in self.cloud.calls
                              if not call.reads])
        self.assertEqual([], self.cloud.db.statements)

    def test_one_look_for_any_number_of_volumes(self) -> None:
        costs = []
        for _ in range(2):
            self.cloud.calls.clear()
            scrape(self.a)
            costs.append(len(self.cloud.calls))
            for _ in range(20):
                self.cloud.create(self.a)
        self.assertEqual(*costs)


class OwnMetadataTest(base.CloudTestCase):

    options: typing.Mapping[str, typing.Any] = {'own_metadata': True}

    def test_each_group_tells_for_itself(self) -> None:
        error = exceptions.GroupLost(group='g', disk='/dev/sdx')
        for group, role in ((self.a.group, 'data'),
                            (self.a.meta_group, 'metadata')):
            with mock.patch.object(group, 'report', side_effect=error):
                found = scrape(self.a)
            self.assertEqual(
                {labels(role=one): float(one != role)
                 for one in ('data', 'metadata')}, found['readable'])
            self.assertNotIn(labels(role=role),
                             found['volume_group_size_bytes'])
            self.assertEqual(role == 'metadata', bool(found['lvs']))


class CountTest(base.CloudTestCase):

    def test_moves_that_have_ended(self) -> None:
        count = collector.Count()
        self.a.process.world.moves.listen(count)
        self.cloud.fate = lambda message: (
            ports.Fate.LOST if message.request == 'Prepare'
            else ports.Fate.ARRIVES)
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaises(exceptions.PeerUnreachable):
            self.cloud.connect(self.volume, attachment, self.b)
        self.assertEqual({'moved': 0, 'withdrawn': 1}, count.ended)
        self.cloud.fate = lambda message: ports.Fate.ARRIVES
        self.cloud.connect(self.volume, attachment, self.b)
        # Those of snapshots are not among them.
        count(moves.What.END, moves.Move(
            self.volume, 2, self.a.name, self.b.name,
            SnapshotId('snapshot')), '')
        self.assertEqual({'moved': 1, 'withdrawn': 1}, count.ended)
        registry = prometheus_client.CollectorRegistry()
        registry.register(collector.Collector(collector.Source(
            self.a.process.world.host, moves=count)))
        found = parse(prometheus_client.generate_latest(registry).decode())
        self.assertEqual({labels(result='moved'): 1,
                          labels(result='withdrawn'): 1},
                         found['moves_total'])


class GateTest(migration.MigrationTestCase):

    def test_writes_that_wait(self) -> None:
        self.migrate()
        copy = self.cloud.row(self.volume).offer
        assert copy
        of = labels(volume=self.volume, lv=copy.lv)
        found = scrape(self.b)
        self.assertEqual({of: 0}, found['held_writes'])
        # By that the alert for what stands still leaves it out.
        self.assertEqual([{*of, ('lender', self.a.name)}],
                         list(found['hydration_copied_bytes']))
        self.held(self.b, self.new)
        self.assertEqual({of: 1}, scrape(self.b)['held_writes'])
        self.event(self.b, self.new)
        self.assertEqual({}, scrape(self.b)['held_writes'])


class CommandTest(base.CloudTestCase):

    def call(self, *words: typing.Any, path: str | None = None
             ) -> tuple[int, str, str]:
        out, errors = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(errors)):
            code = command.run([node.process.world.host for node in words],
                               path)
        return code, out.getvalue(), errors.getvalue()

    def test_a_file_is_what_would_be_printed(self) -> None:
        path = os.path.join(self.folder(), 'dmclone.prom')
        for _ in range(2):
            self.assertEqual((0, '', ''), self.call(self.a, path=path))
        self.assertEqual((0, pathlib.Path(path).read_text(), ''),
                         self.call(self.a))
        self.assertEqual(['dmclone.prom'], os.listdir(os.path.dirname(path)))

    def test_a_file_that_cannot_be_written(self) -> None:
        self.assertEqual(
            (2, '', 'cinder-dmclone: /proc/x/y: No such file or directory\n'),
            self.call(self.a, path='/proc/x/y'))

    def test_a_backend_that_cannot_be_read(self) -> None:
        with mock.patch.object(self.a.group, 'report', side_effect=(
                exceptions.GroupLost(group='g', disk='/dev/sdx'))):
            code, out, errors = self.call(self.a, self.b)
        self.assertEqual(2, code)
        self.assertIn('a@dmclone: Volume group g is not found', errors)
        self.assertIn('cinder_dmclone_readable{backend="dmclone",role="data"'
                      '} 1.0', out)
