# SPDX-License-Identifier: Apache-2.0
"""What a clone is told while servers work, and while they rest."""

from __future__ import annotations

import pathlib
import tempfile
import typing
from unittest import mock

from cinder_dmclone.courses import CALM
from cinder_dmclone.courses import Progress
from cinder_dmclone.privileged import dm_ioctl
from cinder_dmclone.privileged import hydration
from cinder_dmclone.reconcile import pace
from tests.unit.privileged import test_dm

NAME = test_dm.NAME
STATUS = ('0 8 clone 8 8/1024 8 %d/8 0 1 no_discard_passdown 4 '
          'hydration_threshold %d hydration_batch_size %d rw')
REST, WORK = (4096, 1024), (16, 4)
SECONDS = 10.0


class HydrationTest(test_dm.Case):

    def setUp(self) -> None:
        super().setUp()
        folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(hydration, 'STATISTICS', folder))
        (folder / '254:7').mkdir()
        self.counts = folder / '254:7/stat'
        self.now = 1000.0
        time = self.enterContext(mock.patch.object(hydration, 'time'))
        time.monotonic.side_effect = lambda: self.now
        time.sleep.side_effect = self._sleep
        self.sleeps: list[float] = []
        self.then: typing.Callable[[], None] = lambda: None
        self.io(3)
        self.status(3, *REST)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps.append(seconds)
        self.then()

    def io(self, reads: int, under_way: int = 0) -> None:
        """So many reads have been made; ten writes, and two flushes."""
        self.counts.write_text(f'{reads} 0 8 1 10 0 8 1 {under_way} 1 1 '
                               '0 0 0 0 2 1\n')

    def status(self, *values: int) -> None:
        self.ioctl.tables[NAME] = STATUS % values

    def keep_going(self, seconds: float = 0.0, wake: bool = True,
                   requests: int = 15, calm: float = CALM
                   ) -> tuple[float, tuple[Progress, ...]]:
        return hydration.keep_going(
            ((NAME, REST, WORK, wake, requests, calm),), seconds)

    def told(self) -> list[str]:
        found = [text for _, text in self.ioctl.messages]
        self.ioctl.messages.clear()
        return found

    def test_who_rests_gets_all(self) -> None:
        """And has the kernel look at once, whatever it is set to."""
        self.status(3, *WORK)
        pause, _ = self.keep_going()
        self.assertEqual(hydration.SLOW, pause)
        self.assertEqual(['hydration_batch_size 1024',
                          'hydration_threshold 4096'], self.told())
        self.status(3, *REST)
        self.keep_going(wake=False)
        self.assertEqual(['hydration_threshold 4096'], self.told())

    def test_who_works_gets_less(self) -> None:
        for reads, under_way in (4, 0), (3, 1):
            self.io(reads, under_way)
            self.status(3, *REST)
            pause, _ = self.keep_going()
            self.assertEqual(hydration.QUICK, pause)
            self.assertEqual(['hydration_batch_size 4',
                              'hydration_threshold 16'], self.told())

    def test_without_a_floor_it_is_left_to_the_kernel(self) -> None:
        self.status(3, *WORK)
        self.keep_going(wake=False, calm=0.0)
        self.assertEqual([], self.told())
        self.keep_going(wake=True, calm=0.0)
        self.assertEqual(['hydration_threshold 16'], self.told())

    def test_what_came_before_the_first_look_is_not_work(self) -> None:
        _, (found,) = self.keep_going(requests=-1)
        self.assertEqual((15, False), (found.requests, found.calm < CALM))

    def test_a_while_without_io_is_rest(self) -> None:
        def then() -> None:
            self.status(int(self.now - 1000), *WORK)
        self.then = then
        then()
        _, (found,) = self.keep_going(SECONDS, calm=0.0)
        self.assertGreaterEqual(found.calm, CALM)
        self.assertAlmostEqual(CALM, found.worked, delta=0.05)
        self.assertAlmostEqual(SECONDS - CALM, found.rested,
                               delta=0.2)
        # One arrived each second.
        self.assertEqual((1, 8), (found.work, found.rest))

    def test_calm_goes_on_from_call_to_call(self) -> None:
        """One call is no longer than what has to be calm."""
        calm, rested = 0.0, 0.0
        for _ in range(3):
            _, (found,) = self.keep_going(pace.SECONDS, calm=calm)
            calm, rested = found.calm, found.rested
        self.assertGreater(calm, CALM)
        self.assertGreater(rested, 0.9)

    def test_work_is_seen_at_the_next_look(self) -> None:
        def then() -> None:
            if self.now > 1005:
                self.io(int(self.now * 100))
        self.then = then
        _, (found,) = self.keep_going(SECONDS)
        self.assertLess(found.calm, CALM)
        self.assertAlmostEqual(SECONDS / 2, found.worked, delta=0.2)

    def test_a_hand_is_left_alone(self) -> None:
        """A kernel takes a batch size of 0 for 1."""
        for window in (0, 4), (1, 0), (0, 0):
            self.status(3, *window)
            _, (found,) = self.keep_going(SECONDS, calm=0.0)
            # Nothing follows from what it has done meanwhile.
            self.assertEqual((0, 0), (found.worked, found.rested))
        self.assertEqual([], self.told())

    def test_what_is_gone_is_left_out(self) -> None:
        for status in '0 8 clone Fail', '0 8 linear ', '0 8 clone Error':
            self.ioctl.tables[NAME] = status
            self.assertEqual((), self.keep_going()[1])
        self.status(3, *WORK)
        self.counts.unlink()
        self.assertEqual((), self.keep_going(SECONDS)[1])
        del self.ioctl.tables[NAME]
        self.assertEqual((), self.keep_going(SECONDS)[1])
        self.assertEqual([], self.told())

    def test_only_clones_of_ours(self) -> None:
        for name in 'sda', NAME.replace('clone-clone', 'clone-front'):
            with self.assertRaises(ValueError):
                hydration.keep_going(((name, REST, WORK, True, -1, False),),
                                     0.0)

    def test_what_takes_long_is_done_less_often(self) -> None:
        """However many clones there are, and however large."""
        ask = dm_ioctl.ask

        def slow(*args: typing.Any, **named: typing.Any) -> typing.Any:
            self.now += 0.1
            return ask(*args, **named)
        with mock.patch.object(dm_ioctl, 'ask', slow):
            pause, _ = self.keep_going()
        # The status and one message.
        self.assertAlmostEqual(0.2 / hydration.SHARE, pause)
