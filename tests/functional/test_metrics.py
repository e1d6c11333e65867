# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told by nodes, and what it thinks of that."""
from __future__ import annotations

import pathlib
from collections.abc import Iterable

import prometheus_client
from prometheus_client import core
import testtools

from cinder_dmclone.metrics import collector
from lab import promtool
from lab.processes import run
from tests.functional import environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / 'etc/prometheus/cinder-dmclone.rules.yml'
RULE_TESTS = ROOT / 'tests/prometheus/rules.test.yml'


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
