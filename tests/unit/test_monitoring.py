# SPDX-License-Identifier: Apache-2.0
"""Rules, dashboard and page are about what a node tells, and the reverse.

``promtool`` reads rules and metrics as Prometheus does: it needs a lab
(``tests/functional/test_metrics.py``).
"""

from __future__ import annotations

import json
import re
import typing

import yaml

from cinder_dmclone.metrics import collector
from cinder_dmclone.stack import roles
from tests.unit import base
from tests.unit import test_metrics
from tests.unit import test_packaging
from tests.unit import migration

ROOT = test_packaging.ROOT
RULES = ROOT / 'etc/prometheus/cinder-dmclone.rules.yml'
RULE_TESTS = ROOT / 'tests/prometheus/rules.test.yml'
DASHBOARD = ROOT / 'etc/grafana/cinder-dmclone.json'
PAGE = (ROOT / 'doc/source/admin/monitoring.rst').read_text()
# What Prometheus itself adds to what it has scraped.
ITS_OWN = {'instance', 'job'}
# What is said of those that do not answer; by the job of the page.
_SILENT = ('DMCloneNodeSilent', 'Silent nodes')
_UP = re.compile(r'\bup\{job="([^"]+)"')
_METRIC = re.compile(rf'\b{collector.PREFIX}(\w+)')
# Where a query or a text has names of labels.
_LABELS = (re.compile(r'\b(?:by|on) \(([^)]*)\)'),
           re.compile(r'\$labels\.(\w+)'),
           re.compile(r'(?<!\{)\{(\w+)=~?'),
           re.compile(r'\{\{(\w+)\}\}'))


def alerts() -> dict[str, dict[str, typing.Any]]:
    """Each alert by its name."""
    group, = yaml.safe_load(RULES.read_text())['groups']
    return {rule['alert']: rule for rule in group['rules']}


def panels() -> list[dict[str, typing.Any]]:
    """What the dashboard shows."""
    found = json.loads(DASHBOARD.read_text())['panels']
    assert isinstance(found, list)
    return found


def uses() -> dict[str, tuple[str, str]]:
    """The query of each alert and panel, and the text that goes with it."""
    found = {name: (rule['expr'], json.dumps(rule['annotations']))
             for name, rule in alerts().items()}
    for panel in panels():
        for target in panel['targets']:
            found[panel['title']] = (target['expr'], target['legendFormat'])
    return found


def labels_of(*texts: str) -> set[str]:
    """The labels that queries and texts name."""
    return {label for text in texts for pattern in _LABELS
            for group in pattern.findall(text)
            for label in re.findall(r'\w+', group)}


def labels_in(query: str) -> set[str]:
    """The labels that all metrics of a query have."""
    return set.intersection(*(
        {'backend', *collector.METRICS[metric][1]}
        for metric in _METRIC.findall(query))) | ITS_OWN


class UseTest(base.TestCase):

    def test_what_is_used_is_told_with_these_labels(self) -> None:
        for name, (query, text) in uses().items():
            metrics = set(_METRIC.findall(query))
            if name in _SILENT:
                self.assertEqual(set(re.findall(r'job_name: (\S+)', PAGE)),
                                 set(_UP.findall(query)))
                told = ITS_OWN
            else:
                self.assertLessEqual(metrics, collector.METRICS.keys(), name)
                self.assertTrue(metrics, name)
                # What follows takes rows away, and leaves no label.
                shown, _, without = query.partition(' unless ')
                told = labels_in(shown)
                self.assertLessEqual(labels_of(without),
                                     told & labels_in(query), name)
                query = shown
            self.assertLessEqual(labels_of(query, text), told, name)

    def test_labels_are_found(self) -> None:
        """Otherwise the test above could not fail."""
        self.assertEqual({'a', 'b', 'c', 'd', 'e', 'f'}, labels_of(
            'sum by (a, b) (x{c=~"$node"}) unless on (f) y',
            '{{d}} {{ $labels.e }}'))

    def test_what_is_told_is_used(self) -> None:
        queries = ' '.join(query for query, _ in uses().values())
        self.assertEqual(collector.METRICS.keys(),
                         set(_METRIC.findall(queries)))

    def test_variables_of_the_dashboard(self) -> None:
        whole = json.loads(DASHBOARD.read_text())
        variables = {each['name']: each
                     for each in whole['templating']['list']}
        self.assertLessEqual(
            set(re.findall(r'\$\{?(\w+)', DASHBOARD.read_text())),
            variables.keys())
        self.assertEqual(['info'],
                         _METRIC.findall(variables['node']['query']))

    def test_each_alert_can_be_told_from_others(self) -> None:
        for name, rule in alerts().items():
            self.assertEqual({'alert', 'expr', 'labels', 'annotations'},
                             rule.keys() - {'for'}, name)
            self.assertIn(rule['labels']['severity'],
                          ('critical', 'warning'))
            self.assertIn('$labels.instance', rule['annotations']['summary'])

    def test_each_alert_is_tested(self) -> None:
        """That it fires, and that it does not."""
        found = yaml.safe_load(RULE_TESTS.read_text())
        self.assertEqual([RULES], [(RULE_TESTS.parent / name).resolve()
                                   for name in found['rule_files']])
        fires: dict[str, set[bool]] = {}
        for test in found['tests']:
            for case in test['alert_rule_test']:
                fires.setdefault(case['alertname'], set()).add(
                    bool(case.get('exp_alerts')))
        self.assertEqual(dict.fromkeys(alerts(), {False, True}), fires)

    def test_each_panel_says_what_it_shows(self) -> None:
        for panel in panels():
            self.assertTrue(panel['title'])
            self.assertTrue(panel['description'], panel['title'])
            self.assertTrue(panel['fieldConfig']['defaults']['unit'],
                            panel['title'])

    def test_nothing_is_green_because_nobody_answers(self) -> None:
        """A zero is that of somebody."""
        self.assertNotIn('vector(', DASHBOARD.read_text())

    def test_the_table_of_roles(self) -> None:
        matrix, order = next(panel for panel in panels()
                             if panel['title'] == 'Logical volumes'
                             )['transformations']
        rows, columns = (matrix['options'][field]
                         for field in ('rowField', 'columnField'))
        first = f'{rows}\\{columns}'
        self.assertEqual([first, *(role.value for role in roles.Role)],
                         list(order['options']['indexByName']))
        self.assertEqual([first], list(order['options']['renameByName']))

    def test_no_two_panels_are_in_one_place(self) -> None:
        taken: set[tuple[int, int]] = set()
        for panel in panels():
            at = panel['gridPos']
            cells = {(at['x'] + x, at['y'] + y) for x in range(at['w'])
                     for y in range(at['h'])}
            self.assertFalse(taken & cells, panel['title'])
            taken |= cells


class ToldTest(migration.MigrationTestCase):

    options: typing.Mapping[str, typing.Any] = {'own_metadata': True}

    def test_everything_is_told_of_a_node_at_work(self) -> None:
        """One volume hydrates on b, the server of another moves there."""
        self.migrate()
        other = self.cloud.create(self.a)
        self.cloud.attach(other, self.b)
        self.cloud.settle(1)
        found = test_metrics.scrape(self.b)
        for name, (_, labels) in collector.METRICS.items():
            self.assertTrue(found[name], name)
            for of in found[name]:
                self.assertEqual({'backend', *labels}, dict(of).keys(), name)
        self.assertEqual(set(collector.METRICS), set(found))


class PageTest(base.TestCase):

    def section(self, name: str) -> dict[str, str]:
        """The list in a section of the page: its terms, and what follows."""
        part = PAGE.partition(f'.. _{name}:')[2].partition('\n.. _')[0]
        found = re.findall(r'(?m)^``(\S.*)``\n((?:   .*\n|\n(?=   ))+)', part)
        return {term: ' '.join(text.split()) for term, text in found}

    def test_metrics(self) -> None:
        told = {f'{collector.PREFIX}{name}{{'
                f'{", ".join(("backend", *labels))}}}': meaning
                for name, (meaning, labels) in collector.METRICS.items()}
        found = self.section('metrics')
        self.assertEqual(list(told), list(found))
        for term, meaning in told.items():
            self.assertTrue(found[term].startswith(meaning), term)

    def test_alerts(self) -> None:
        found = self.section('alerts')
        self.assertEqual(list(alerts()), list(found))
        self.assertTrue(all(found.values()))

    def test_roles(self) -> None:
        text = self.section('metrics')['cinder_dmclone_lvs{backend, role}']
        self.assertEqual([role.value for role in roles.Role],
                         re.findall('``(\\w+)``', text)[1:])
