# SPDX-License-Identifier: Apache-2.0
"""A thin pool whose I/O waits: LVM was killed, or somebody has meant it."""

from __future__ import annotations

import logging
from unittest import mock

from cinder_dmclone.cli import status
from cinder_dmclone import exceptions
from cinder_dmclone import preflight
from cinder_dmclone.service import capacity
from cinder_dmclone.service import volumes
from cinder_dmclone import units
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit.service import test_thin_snapshots

TPOOL = 'volumes-volumes--pool-tpool'


class SuspendedCase(test_thin_snapshots.ThinCase):

    def setUp(self) -> None:
        super().setUp()
        self.enqueued: list[str] = []
        self.start_stats()
        # Another volume of the pool has nothing to do with the change.
        self.other = self.cloud.create(self.a)
        self.path = self.cloud.attach(self.other, self.a)[1]
        self.a.mapper.open(self.path)

    def start_stats(self) -> None:
        self.stats = capacity.Stats(
            self.a.process.world, mock.Mock(
                reserved_percentage=0, max_over_subscription_ratio='2.5',
                target_ip_address='198.51.100.9'), lambda: 0,
            self.enqueued.append)

    def state(self) -> str:
        """What Cinder's scheduler is told."""
        pool, = self.stats.get('1', None, None)['pools']
        return str(pool['backend_state'])

    def problems(self) -> list[str]:
        """What ``check`` says."""
        host = self.a.process.world.host
        return [*preflight.pool_problems(host),
                *preflight.group_problems(host)]

    def seen(self) -> set[str | None]:
        """What ``status`` says is wrong."""
        return {each.problem for each in status.look(self.a.process.world)}

    def write(self, value: str) -> None:
        self.a.mapper.write(self.path, 0, value)

    def assert_waits(self) -> None:
        with self.assertRaises(mapped.Queued):
            self.write('waits')

    def assert_goes_on(self) -> None:
        self.write('goes on')
        self.assertEqual(set(), self.a.group.waiting)
        self.assertEqual(('up', []), (self.state(), self.problems()))
        self.assertEqual({None}, self.seen())


class InterruptedTest(SuspendedCase):
    """LVM is killed while it lets a volume grow."""

    def interrupt(self, error: type[BaseException]) -> None:
        with self.assertRaises(error):
            volumes.extend(self.a.service, self.volume, 2)
        self.assert_waits()

    def alone(self) -> None:
        self.cloud.lvm_dies = lambda: True
        self.interrupt(exceptions.CommandTimeout)
        self.cloud.lvm_dies = lambda: False

    def test_with_cinder_volume(self) -> None:
        self.at('suspended', self.a.kill)
        self.interrupt(ports.Killed)
        self.cloud.before = lambda call: None
        self.a.start()
        self.start_stats()
        self.assert_goes_on()

    def test_the_next_look_finds_it(self) -> None:
        self.alone()
        self.a.process.loop.run_once()
        self.assert_goes_on()

    def test_at_any_volume_of_the_pool(self) -> None:
        """That which LVM changed need not be one of ours."""
        self.alone()
        self.a.process.loop.run_once()
        self.a.group.waiting.add(TPOOL)
        self.a.group.create('theirs', units.Bytes.from_gib(1), [])
        self.a.group.volumes['theirs'].suspended = True
        self.assert_waits()
        self.assertEqual('down', self.state())
        self.assertEqual(1, len(self.enqueued))
        self.a.process.loop.enqueue(self.enqueued[0])
        self.a.process.loop.run_once()
        self.assert_goes_on()

    def test_it_is_said(self) -> None:
        self.alone()
        found, = self.problems()
        self.assertEqual(
            'All I/O of thin pool volumes/volumes-pool waits, since LVM was '
            'killed while it changed it: restart cinder-volume', found)
        self.assertEqual({'ERROR: it is suspended'}, self.seen())

    def test_a_power_cut(self) -> None:
        self.alone()
        self.a.lose_power()
        self.a.start()
        self.assertEqual(set(), self.a.group.waiting)
        self.assertEqual([], self.problems())

    def test_nothing_new_is_asked_of_it(self) -> None:
        """LVM would wait for it, and nobody could end that."""
        self.alone()
        self.cloud.db.update(self.other, status='creating')
        with self.assertRaises(exceptions.PoolSuspended):
            volumes.create(self.a.service, self.other)


class ByHandTest(SuspendedCase):
    """Nothing above its own devices is suspended: so LVM never leaves it."""

    def setUp(self) -> None:
        super().setUp()
        self.a.group.waiting.add(TPOOL)

    def test_it_is_left_as_it_is(self) -> None:
        self.a.process.loop.run_once(everything=True)
        self.a.kill()
        self.a.start()
        self.assert_waits()
        self.assertEqual({TPOOL}, self.a.group.waiting)

    def test_it_is_said(self) -> None:
        words = (f'somebody has suspended {TPOOL}, and it is not known what '
                 f'for: dmsetup resume {TPOOL}')
        found, = self.problems()
        self.assertEqual('All I/O of thin pool volumes/volumes-pool waits: '
                         + words, found)
        self.assertEqual({'ERROR: its thin pool is suspended'}, self.seen())
        with self.assertLogs(level='ERROR') as logs:
            logging.disable(logging.NOTSET)
            self.assertEqual(['down'] * 3, [self.state() for _ in range(3)])
        line, = logs.output
        self.assertIn(words, line)
        # There is nothing that a look could do.
        self.assertEqual([], self.enqueued)
        self.a.group.waiting.clear()
        self.assert_goes_on()
