# SPDX-License-Identifier: Apache-2.0
"""A node is drained, and something goes wrong."""

from __future__ import annotations

import contextlib
import typing
from unittest import mock

from cinder_dmclone.cli import remains
from cinder_dmclone import exceptions
from cinder_dmclone.peers import messages
from tests.unit import base
from tests.unit.fake import ports
from tests.unit import test_cli
from tests.unit import test_drain


class RefusedTest(test_drain.DrainTestCase):
    """Whatever goes wrong is told in a line."""

    def assert_refused(self, why: str) -> None:
        before = self.state()
        code, lines, err = self.call()
        self.assertEqual((2, []), (code, lines))
        self.assertRegex(err, f'^cinder-dmclone: .*{why}.*\n$')
        self.assertEqual(before, self.state())

    def test_the_service_is_down(self) -> None:
        with mock.patch.object(ports.Peers, 'is_up', return_value=False):
            self.assert_refused('cinder-volume of a@dmclone, which has to do '
                                'it, is down: start it. Nothing was changed.')

    def test_the_database_is_away(self) -> None:
        with self.cloud.db.away():
            code, lines, err = self.call()
        self.assertEqual((2, []), (code, lines))
        self.assertRegex(err, '^cinder-dmclone: the database does not answer:'
                         '.*Nothing was changed.\n$')

    def test_the_database_goes_away(self) -> None:
        away = contextlib.ExitStack()
        self.addCleanup(away.close)
        self.enterContext(mock.patch.object(
            self.cloud.clock, 'sleep', lambda seconds: away.enter_context(
                self.cloud.db.away())))
        code, _, err = self.call()
        self.assertEqual(2, code)
        self.assertRegex(err, 'the database does not answer: .*; run it '
                         'again, what has moved is not here any more\n$')

    def test_an_answer_that_is_lost(self) -> None:
        """The volume has moved all the same."""
        self.fates('Leave', ports.Fate.UNANSWERED)
        code, lines, _ = self.call()
        self.assertEqual(0, code)
        self.assertIn('has not moved yet: Node a@dmclone did not answer',
                      ' '.join(lines))
        self.assertEqual({}, self.a.group.volumes)

    def test_a_second_operator(self) -> None:
        """Each volume moves once, whoever asks first."""
        self.fates('Leave', ports.Fate.TWICE)
        code, _, _ = self.call()
        self.assertEqual(0, code)
        self.assertEqual(2, self.cloud.row(self.volume).generation)

    def test_somebody_attaches_it_meanwhile(self) -> None:
        """Between the look and the offer."""
        look = remains.look

        def slowly(world: typing.Any) -> list[remains.Item]:
            found = look(world)
            if self.cloud.row(self.volume).status == 'available':
                self.cloud.attach(self.volume, self.a)
            return found
        with mock.patch.object(remains, 'look', slowly):
            code, lines, _ = self.call()
        self.assertEqual(1, code)
        self.assertRegex(lines[-2], f'^stays: volume {self.volume}: it has '
                         'the attachment')
        self.assertEqual(('in-use', None), (
            self.cloud.row(self.volume).status,
            self.cloud.row(self.volume).migration_status))


class WordsTest(base.TestCase):

    def test_none_at_a_time(self) -> None:
        for words in ('--parallel', '0'), ('--parallel', 'x'), ('node1',):
            done = self.run_with_config(test_cli.CONF, test_cli.MAIN, 'drain',
                                        *words)
            self.assertEqual((2, ''), (done.returncode, done.stdout))
            self.assertNotIn('Traceback', done.stderr)


class CrashTest(test_drain.DrainTestCase):
    """cinder-volume ends at any step of the move of a volume."""

    def test_the_volume_is_as_before_or_elsewhere(self) -> None:
        number = 0
        while self.crash(number):
            number += 1
            self.doCleanups()
            self.setUp()
        # Lend, flush, export; offer, commit; and what is asked of the other.
        self.assertGreater(number, 5)

    def crash(self, number: int) -> bool:
        """Whether there was such a step."""
        left = [number]

        def kill(call: ports.Call) -> None:
            if call.node == 'a@dmclone' and not call.reads:
                left[0] -= 1
                if left[0] == -1:
                    self.a.kill()
        self.cloud.before = kill
        with contextlib.suppress(exceptions.PeerUnreachable):
            self.b.process.world.peers.ask(self.a.name,
                                           messages.Leave(self.volume))
        self.cloud.before = lambda call: None
        if left[0] >= 0:
            return False
        self.a.start()
        self.cloud.settle()
        row = self.cloud.row(self.volume)
        self.assertEqual('available', row.status)
        self.assertIn(row.migration_status, (None, 'error', 'success'))
        self.assertEqual((None, None), (row.source, row.offer))
        self.assertEqual(1 + (row.node != self.a.name), row.generation)
        return True
