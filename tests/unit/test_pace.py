# SPDX-License-Identifier: Apache-2.0
"""Which clones the kernel is asked to look at, and for how long."""

from __future__ import annotations

import threading
import typing
from unittest import mock

from cinder_dmclone.host.dm import device
from cinder_dmclone import names
from cinder_dmclone.reconcile import pace
from cinder_dmclone.stack import inspect
from tests.unit import base
from tests.unit.fake import ports

# How long the thread may take; it is far faster.
SECONDS = 60


class PaceTest(base.CloudTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.pace = pace.Pace(self.b.service.host, self.cloud.clock)

    def looked_at(self) -> tuple[str, ...]:
        with mock.patch.object(self.b.mapper, 'look_again',
                               return_value=0.0) as look:
            self.pace.follow(inspect.collect(self.b.service.host).values())
            self.pace.once()
        (clones, *_), _ = look.call_args
        found: tuple[str, ...] = clones
        return found

    def move(self) -> tuple[str, ...]:
        """Move the volume to b, and what is to be looked at then."""
        self.cloud.attach(self.volume, self.b)
        self.b.process.loop.run_once(everything=True)
        return str(names.clone(self.cloud.row(self.volume).lv)),

    def test_what_hydrates(self) -> None:
        self.assertEqual((), self.looked_at())
        wanted = self.move()
        self.assertEqual(wanted, self.looked_at())

    def test_not_what_has_hydrated(self) -> None:
        self.move()
        self.b.mapper.hydrate(base.REGIONS)
        self.assertEqual((), self.looked_at())
        self.cloud.settle()
        self.assertEqual((), self.looked_at())

    def test_not_what_may_not_hydrate_yet(self) -> None:
        clone, = self.move()
        self.b.mapper.message(clone, 'disable_hydration')
        self.assertEqual((), self.looked_at())

    def test_not_what_waits_for_its_lender(self) -> None:
        self.move()
        self.a.lose_power()
        self.cloud.lose_paths()
        self.assertEqual((), self.looked_at())

    def test_the_reconciler_knows(self) -> None:
        wanted = self.move()
        loop = self.b.process.loop
        loop.run_once(everything=True)
        with mock.patch.object(self.b.mapper, 'look_again',
                               return_value=0.0) as look:
            loop._pace.once()
        look.assert_called_once_with(wanted, pace.TIMES, pace.SECONDS)

    def test_not_what_is_gone(self) -> None:
        """Nobody looks again when a volume was deleted that hydrated."""
        attachment, _ = self.relocated()
        self.cloud.settle(1)
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        with mock.patch.object(self.b.mapper, 'look_again',
                               return_value=0.0) as look:
            self.b.process.loop._pace.once()
        look.assert_called_once_with((), pace.TIMES, pace.SECONDS)

    def test_the_thread(self) -> None:
        """It asks nobody while there is none."""
        looks: list[typing.Iterable[str]] = []
        enough, go_on = threading.Event(), threading.Event()

        class Clock(ports.Clock):
            def sleep(_self, seconds: float) -> None:
                self.assertEqual(pace.SECONDS, seconds)
                if len(looks) == 3:
                    # What has hydrated is asked for no more.
                    self.pace.follow([])
                    enough.set()
                    go_on.wait(SECONDS)
        wanted = self.move()
        self.pace = pace.Pace(self.b.service.host, Clock())
        stacks = inspect.collect(self.b.service.host)

        def look(clones: typing.Iterable[str], _times: int,
                 _pause: float) -> float:
            looks.append(clones)
            return 0.0
        with mock.patch.object(self.b.mapper, 'look_again', look):
            self.pace.start()
            self.pace.follow(stacks.values())
            self.assertTrue(enough.wait(SECONDS))
            go_on.set()
            self.assertEqual([wanted] * 3, looks)

    def test_it_goes_on_after_a_failure(self) -> None:
        self.move()
        with mock.patch.object(self.b.mapper, 'look_again',
                               side_effect=OSError('refused')):
            self.assertEqual(pace.PAUSE, self.pace.once())
        self.assertEqual(pace.SECONDS, self.pace.once())

    def test_what_takes_long_is_done_less_often(self) -> None:
        """However many clones there are, and however large."""
        with mock.patch.object(self.b.mapper, 'look_again',
                               return_value=0.2):
            self.assertAlmostEqual(0.2 / pace.SHARE, self.pace.once())


class DoorTest(base.TestCase):

    def test_all_at_once(self) -> None:
        """One call of what runs as root, however many there are."""
        with mock.patch.object(device, 'dm') as dm:
            device.DeviceMapper().look_again(['a', 'b'], 3, 0.1)
        dm.look_again.assert_called_once_with(('a', 'b'), 3, 0.1)
