# SPDX-License-Identifier: Apache-2.0
"""The page about fleets says what the installed libraries do by default."""

from __future__ import annotations

import configparser
import csv
import importlib
import json
import re

from cinder import objects
from cinder import service
from oslo_db import options
from oslo_messaging._drivers import impl_rabbit
from oslotest import base

from cinder_dmclone.reconcile import schedule
from lab import held
from tests.unit import test_packaging

objects.register_all()
# It needs them.
manager = importlib.import_module('cinder.volume.manager')

PAGE = (test_packaging.ROOT / 'doc/source/admin/fleet.rst').read_text()
SIZES = (100, 300, 1000)
MINUTE = 60
# Topics with a server in each process: two of Cinder's (cinder/service.py,
# Service.start) and the driver's (service/endpoint.py).
LISTENS = 3
ANSWERS = 1
# Of each topic that of the server, and one for all servers; the second topic
# of Cinder's is the first one's server.
QUEUES = 2 * LISTENS + ANSWERS
# A report reads its row and writes it.
REPORT = 2

DEFAULTS = {opt.name: opt.default for opt in (
    *options.database_opts, *impl_rabbit.rabbit_opts, *service.service_opts,
    *manager.volume_manager_opts)}


def table() -> list[list[str]]:
    """Its rows, without the heading."""
    lines = re.findall(r'^   (".*?",.*\w{3,})$', PAGE, re.MULTILINE)
    return list(csv.reader(lines))


def recommended() -> dict[str, str]:
    """The options that it recommends."""
    block = PAGE.partition('.. code-block:: ini')[2].partition('\n``')[0]
    parser = configparser.ConfigParser(default_section='')
    parser.read_string('\n'.join(line.strip() for line in block.split('\n')))
    return {name: value for section in parser.sections()
            for name, value in parser[section].items()}


def of_a_node() -> list[float]:
    """What a node has by the libraries' defaults, in the table's order."""
    was, now = DEFAULTS, {name: int(value)
                          for name, value in recommended().items()}
    fixed = LISTENS + ANSWERS
    rest = fixed + was['conn_pool_min_size']
    return [
        was['max_pool_size'],
        was['max_pool_size'] + was['max_overflow'],
        now['max_pool_size'] + now['max_overflow'],
        rest,
        fixed + was['rpc_conn_pool_size'],
        fixed + now['rpc_conn_pool_size'],
        QUEUES,
        rest * was['heartbeat_rate'] * MINUTE / was[
            'heartbeat_timeout_threshold'],
        MINUTE / was['report_interval'],
        REPORT * MINUTE / was['report_interval'],
        REPORT * MINUTE / now['report_interval'],
        0,
        2 * MINUTE / was['backend_stats_polling_interval'],
        24 * 60 * MINUTE / schedule.EVERYTHING]


class FleetPageTest(base.BaseTestCase):

    def test_the_table(self) -> None:
        self.assertEqual(of_a_node(), [float(row[1]) for row in table()])
        for what, one, *fleets, known in table():
            self.assertEqual([int(one) * size for size in SIZES],
                             [int(cell) for cell in fleets], what)
            self.assertIn(known, ('read', 'measured', 'set'))

    def test_what_was_measured(self) -> None:
        """It is said as it was, and no more than the table has."""
        value = {figure['name']: figure['value'] for figure in json.loads(
            (test_packaging.ROOT / 'doc/results/held.json').read_text())[
                'figures']}
        page = {name: numbers for name, *numbers in csv.reader(
            re.findall(r'^   ("[^"]*"(?:,\d+){4})$', PAGE, re.MULTILINE))}
        for name, numbers in page.items():
            self.assertEqual(
                [value[f'{name}, {when}, {how}']
                 for how in ('defaults', 'recommended')
                 for when in ('at rest', 'busy')],
                [int(number) for number in numbers])
        self.assertEqual(4, len(page))
        _, database, database_set, _, bus, bus_set, queues = (
            int(one) for _, one, *_ in table()[:7])
        most = {'database connections': (database, database_set),
                'bus connections': (bus, bus_set),
                'bus channels': (bus, bus_set),
                'bus queues': (queues + 2, queues + 2)}
        for name, limits in most.items():
            for how, limit in zip(('defaults', 'recommended'), limits,
                                  strict=True):
                self.assertLessEqual(value[f'{name}, busy, {how}'], limit)

    def test_what_is_recommended_is_what_is_measured(self) -> None:
        found = recommended()
        for section in held.RECOMMENDED.values():
            for name, value in section.items():
                self.assertEqual(str(value), found[name])
        self.assertGreater(int(found['service_down_time']),
                           int(found['report_interval']))
