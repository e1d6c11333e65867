# SPDX-License-Identifier: Apache-2.0
"""Cinder is asked in the background, and may be away."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import typing
import unittest

from cinder_dmclone.nova import knowledge
from tests.unit.nova import base

# Real seconds, for what never answers.
SHORT = 0.05
LONG = 60
LOG = 'cinder_dmclone.nova.knowledge'


class KnowledgeTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.clock = base.Clock()
        self.cinder = base.Cinder(v=base.volume('node1'))
        self.known = self.knowing(LONG)
        logging.disable(logging.NOTSET)

    def knowing(self, wait: float) -> knowledge.Knowledge:
        return knowledge.Knowledge(self.cinder, self.clock, wait)

    def reports(self) -> int:
        return self.cinder.asked.count('report')

    def hold(self) -> threading.Event:
        """Let Cinder not answer before the event."""
        event = threading.Event()
        self.cinder.held = event.wait
        self.addCleanup(event.set)
        return event

    def landed(self) -> None:
        """Wait for what is asked in the background."""
        flight = self.known._flight
        if flight:
            flight.result(LONG)

    def logs(self) -> typing.Any:
        return self.assertLogs(LOG, 'INFO')

    def test_the_first_report_is_waited_for(self) -> None:
        self.assertIsNotNone(self.known.report())
        self.known.report()
        self.assertEqual(1, self.reports())

    def test_an_old_report_is_served_while_one_is_fetched(self) -> None:
        first = self.known.report()
        self.clock.now += knowledge.FRESH
        event = self.hold()
        self.assertIs(first, self.known.report())
        self.assertIs(first, self.known.report())
        event.set()
        self.landed()
        self.assertIsNot(first, self.known.report())
        self.assertEqual(2, self.reports())

    def test_a_report_of_long_ago_is_not_served(self) -> None:
        first = self.known.report()
        self.clock.now += knowledge.STALE
        self.assertIsNot(first, self.known.report())
        self.assertEqual(2, self.reports())

    def test_many_ask_once(self) -> None:
        event = self.hold()
        found: list[object] = []
        threads = [threading.Thread(
            target=lambda: found.append(self.known.report()))
            for _ in range(8)]
        for thread in threads:
            thread.start()
        event.set()
        for thread in threads:
            thread.join(LONG)
        self.assertEqual(8, len(found))
        self.assertNotIn(None, found)
        self.assertEqual(1, self.reports())

    def test_an_error_is_told_once(self) -> None:
        self.cinder.error = OSError('refused')
        with self.logs() as logs:
            self.assertIsNone(self.known.report())
            self.assertIsNone(self.known.report())
            self.assertIsNone(self.known.volumes(['v']))
            self.clock.now += knowledge.PAUSE
            self.assertIsNone(self.known.report())
        self.assertEqual(2, self.reports())
        self.assertEqual(1, len(logs.output), logs.output)
        self.assertIn('refused', logs.output[0])
        self.assertTrue(logs.output[0].startswith('WARNING'))

    def test_cinder_is_back(self) -> None:
        self.cinder.error = OSError('refused')
        with self.logs() as logs:
            self.known.report()
            self.clock.now += knowledge.PAUSE
            self.cinder.error = None
            self.assertIsNotNone(self.known.report())
            self.cinder.error = OSError('again')
            self.assertIsNone(self.known.volumes(['v']))
        self.assertEqual(['WARNING', 'INFO', 'WARNING'],
                         [line.partition(':')[0] for line in logs.output])

    def test_what_was_known_is_served_while_cinder_is_away(self) -> None:
        first = self.known.report()
        self.cinder.error = OSError('refused')
        self.clock.now += knowledge.FRESH
        with self.logs():
            self.assertIs(first, self.known.report())
            self.landed()
            self.assertIs(first, self.known.report())
        self.clock.now += knowledge.STALE
        self.assertIsNone(self.known.report())

    def test_nobody_waits_twice_for_what_hangs(self) -> None:
        self.known = self.knowing(SHORT)
        self.hold()
        with self.logs() as logs:
            self.assertIsNone(self.known.report())
            self.known = self.knowing(LONG)
            self.known._flight = concurrent.futures.Future()
            self.clock.now += LONG
            self.assertIsNone(self.known.report())
        self.assertEqual(1, self.reports())
        self.assertIn('no answer', logs.output[0])

    def test_volumes(self) -> None:
        self.assertEqual([base.volume('node1')],
                         self.known.volumes(['v', 'gone']))
        self.assertEqual([], self.known.volumes([]))
        self.assertEqual(['v', 'gone'], self.cinder.asked)

    def test_volumes_that_hang(self) -> None:
        self.known = self.knowing(SHORT)
        self.hold()
        with self.logs():
            self.assertIsNone(self.known.volumes(['v']))
        self.assertIsNone(self.known.volumes(['v']))
        self.assertEqual(['v'], self.cinder.asked)
