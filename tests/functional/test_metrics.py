# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told by nodes, and what it thinks of that."""
from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable

import fixtures
import prometheus_client
from prometheus_client import core, parser
import testtools

from cinder_dmclone.metrics import collector
from lab import promtool
from lab.lab import LabNode
from lab.processes import run
from tests.functional import base
from tests.functional import environment

PORT = 9177
ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / 'etc/prometheus/cinder-dmclone.rules.yml'
RULE_TESTS = ROOT / 'tests/prometheus/rules.test.yml'
DASHBOARD = ROOT / 'etc/grafana/cinder-dmclone.json'
# Whatever proxy the machine has.
_SCRAPE = ('import sys, urllib.request as r; '
           'opener = r.build_opener(r.ProxyHandler({})); '
           'sys.stdout.write(opener.open(sys.argv[1]).read().decode())')
# There is a gate only while a server is live-migrated.
_GATE = 'held_writes'

Found = dict[str, list[tuple[dict[str, str], float]]]


def parse(text: str) -> Found:
    """What a node has told, by name: labels and value."""
    found: Found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name.removeprefix(collector.PREFIX),
                             []).append((sample.labels, sample.value))
    return found


@environment.only_long
class ScrapeTest(base.FunctionalTest):
    """Over the network, from where the control plane is."""

    def setUp(self) -> None:
        super().setUp()
        both = self.node1, self.node2
        self.addCleanup(self.restart_services, *both)
        self.restart_services(*both, change=lambda node: base.set_options(
            node, dmclone_metrics_port=PORT,
            dmclone_metrics_address=node.mgmt_address))

    def scrape(self, node: LabNode) -> str:
        """What a node says to whoever asks."""
        return run(*self.lab.network.argv(
            '/usr/bin/python3', '-c', _SCRAPE,
            f'http://{node.mgmt_address}:{PORT}/metrics')).stdout

    def look(self, node: LabNode) -> Found:
        """The same, parsed."""
        return parse(self.scrape(node))

    def test_a_volume_that_hydrates(self) -> None:
        volume, _ = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        of = {'backend': 'dmclone', 'volume': volume,
              'lv': self.row(volume).lv, 'lender': self.node1.volume.host}
        found = self.look(self.node2)
        self.assertEqual([(of, base.GIB)], found['hydration_size_bytes'])
        (labels, before), = found['hydration_copied_bytes']
        self.assertEqual(of, labels)
        self.assertLess(before, base.GIB)
        self.assertEqual([(of, 1)], found['lender_path_up'])
        self.assertEqual([0], [value for _, value in found['clone_failed']])
        self.assert_named(found)
        self.assert_same(self.node2)
        self.assertIn(({'backend': 'dmclone', 'role': 'lent'}, 1),
                      self.look(self.node1)['lvs'])

        self.node1.partition()
        self.wait('the lender to be away', lambda: self.look(
            self.node2)['lender_path_up'] == [(of, 0)])
        self.node1.heal()
        self.wait('the lender to be back', lambda: self.look(
            self.node2)['lender_path_up'] == [(of, 1)])
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.wait('nothing to be told of volumes', lambda: not re.search(
            'volume="', self.scrape(self.node2)))

    def assert_named(self, found: Found) -> None:
        """What rules and dashboard name is there."""
        for path in (RULES, DASHBOARD):
            named = set(re.findall(rf'\b{collector.PREFIX}(\w+)',
                                   path.read_text()))
            self.assertIn('lender_path_up', named)
            self.assertEqual({_GATE}, {
                name for name in named if not found.get(name)})

    def assert_same(self, node: LabNode) -> None:
        """The command tells what cinder-volume tells, but for one thing."""
        found = self.look(node)
        for name in 'attention', 'moves_total':
            del found[name]
        self.assertEqual(found, parse(node.volume.cli('metrics').stdout))


@environment.only_long
class PromtoolTest(testtools.TestCase):
    """Prometheus' own program about our files."""

    def call(self, *words: object, said: str = '') -> str:
        """What it says; its complaints are the test's."""
        done = run(str(promtool.ensure()), *map(str, words), check=False,
                   input=said or None)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_rules(self) -> None:
        self.assertIn('8 rules found', self.call('check', 'rules', RULES))

    def test_dashboard(self) -> None:
        """Each query is one, with a node in the place of the variable."""
        panels = json.loads(DASHBOARD.read_text())['panels']
        rules = [{'record': f'panel:{panel["id"]}',
                  'expr': target['expr'].replace('$node', 'node1')}
                 for panel in panels for target in panel['targets']]
        path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'dashboard.yml')
        path.write_text(json.dumps(
            {'groups': [{'name': 'dashboard', 'rules': rules}]}))
        self.assertIn(f'{len(panels)} rules found',
                      self.call('check', 'rules', path))

    def test_what_rules_do(self) -> None:
        self.assertIn('SUCCESS', self.call('test', 'rules', RULE_TESTS))

    def test_metrics(self) -> None:
        """Each has the name, the unit and the help that it should have."""
        class One(collector.Collector):
            def collect(self) -> Iterable[core.Metric]:
                for family, (_, labels) in zip(
                        self.describe(), collector.METRICS.values(),
                        strict=True):
                    family.add_metric(['x'] * (1 + len(labels)), 1)
                    yield family

        registry = prometheus_client.CollectorRegistry()
        registry.register(One())
        self.assertEqual('', self.call(
            'check', 'metrics',
            said=prometheus_client.generate_latest(registry).decode()))
