# SPDX-License-Identifier: Apache-2.0
"""Who wants what is being overwritten stops it, and waits for that."""

from __future__ import annotations

import threading
import typing
from unittest import mock

from cinder_dmclone.location import LvUuid
from cinder_dmclone.reconcile import erasures
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import teardown
from tests.unit import base

LV = LvUuid('lv')


class ErasuresTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.now = 0.0
        self.portions: list[bool] = []
        self.world = mock.Mock()
        self.world.clock.monotonic.side_effect = lambda: self.now
        self.world.clock.sleep.side_effect = self.sleep
        self.erasures = erasures.Erasures(self.world)
        self.enterContext(mock.patch.object(inspect, 'refresh'))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def erase(self, may_go: typing.Callable[[], bool],
              erase: typing.Callable[..., None]) -> bool:
        with mock.patch.object(teardown, 'erase', erase):
            return self.erasures.erase(LV, may_go)

    def test_the_row_is_not_read_for_each_portion(self) -> None:
        may_go = mock.Mock(return_value=True)

        def erase(host: object, stack: object,
                  goes_on: typing.Callable[[], bool]) -> None:
            for _ in range(100):
                self.portions.append(goes_on())
                self.now += erasures.LOOK_SECONDS / 10
        self.erase(may_go, erase)
        self.assertEqual([True] * 100, self.portions)
        self.assertEqual(10, may_go.call_count)

    def test_who_halts_it_waits_for_the_portion_under_way(self) -> None:
        begun, halted = threading.Event(), threading.Event()

        def erase(host: object, stack: object,
                  goes_on: typing.Callable[[], bool]) -> None:
            self.portions.append(goes_on())
            begun.set()
            halted.wait()
            self.portions.append(goes_on())

        def sleep(seconds: float) -> None:
            halted.set()
            thread.join()
        self.world.clock.sleep.side_effect = sleep
        thread = threading.Thread(target=self.erase,
                                  args=(lambda: True, erase))
        thread.start()
        begun.wait()
        with self.erasures.halt(LV) as ended:
            self.assertTrue(ended)
            self.assertEqual([True, False], self.portions)
            # Nor does another one begin.
            self.erase(lambda: True, lambda host, stack, goes_on: (
                self.portions.append(goes_on())))
        self.assertEqual([True, False, False], self.portions)

    def test_one_that_was_stopped_is_told(self) -> None:
        """What has not been overwritten must not be given away."""
        def erase(host: object, stack: object,
                  goes_on: typing.Callable[[], bool]) -> None:
            goes_on()
        self.assertTrue(self.erase(lambda: True, erase))
        self.assertFalse(self.erase(lambda: False, erase))
        with self.erasures.halt(LV):
            self.assertFalse(self.erase(lambda: True, erase))
