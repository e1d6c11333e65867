# SPDX-License-Identifier: Apache-2.0
"""A node is drained, and something goes wrong."""

from __future__ import annotations

import contextlib
import threading
import typing
from unittest import mock

from cinder_dmclone.cli import decisions
from cinder_dmclone.cli import drain
from cinder_dmclone.cli import remains
from cinder_dmclone.database import services
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import client
from cinder_dmclone.peers import messages
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.world import World
from tests.unit import base
from tests.unit.fake import cloud
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
                                'it, is down: start it. Nothing was changed '
                                'on a@dmclone.')

    def test_the_database_is_away(self) -> None:
        with self.cloud.db.away():
            code, lines, err = self.call()
        self.assertEqual((2, []), (code, lines))
        self.assertRegex(err, '^cinder-dmclone: the database does not answer:'
                         '.*Nothing was changed on a@dmclone.\n$')

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


class BusyTest(test_drain.DrainTestCase):
    """LVM removes something else for as long as cinder-volume may wait."""

    def drain_busy(self, times: int) -> tuple[int, list[str], str]:
        """Drain a, where so many moves are begun meanwhile."""
        left, begun = [times], []

        def fate(message: ports.Message) -> ports.Fate:
            if message.request == 'Leave':
                begun.append(message)
            return ports.Fate.ARRIVES

        def before(call: ports.Call) -> None:
            if begun and call.method == 'report' and left[0]:
                begun.clear()
                left[0] -= 1
                raise exceptions.CommandTimeout(
                    command='lvm fullreport --units b vg', seconds=30.0)
        self.cloud.fate, self.cloud.before = fate, before
        return self.call()

    def test_it_is_tried_until_lvm_has_time(self) -> None:
        code, lines, _ = self.drain_busy(drain.BUSY_TRIES - 1)
        self.assertEqual(0, code)
        self.assertIn('has not moved yet: Node a@dmclone refused Leave: '
                      'Command lvm fullreport', ' '.join(lines))
        self.assertEqual({}, self.a.group.volumes)

    def test_it_is_not_tried_for_ever(self) -> None:
        code, lines, _ = self.drain_busy(test_drain.LOOKS)
        self.assertEqual(1, code)
        self.assertRegex(lines[-2], f'^stays: volume {self.volume}: .*did not '
                         'end within 30.0 seconds')


class BackendsTest(test_drain.DrainTestCase):
    """a and b are two backends of the node that is drained."""

    def setUp(self) -> None:
        super().setUp()
        self.change_services('b@', disabled=True)
        self.other = self.cloud.create(self.b)

    def drain(self, yes: bool = True) -> tuple[int, list[str], str]:
        return self.call(yes, backends=[self.a, self.b])

    def nodes(self) -> tuple[str, str]:
        """Where the volume of either is now."""
        return (self.cloud.row(self.volume).node,
                self.cloud.row(self.other).node)

    def test_one_that_fails_does_not_keep_the_other(self) -> None:
        for down, left in (('a@dmclone', ('a@dmclone', 'c@dmclone')),
                           ('b@dmclone', ('c@dmclone', 'c@dmclone'))):
            self.down = {down}
            code, _, err = self.drain()
            self.assertEqual((2, left), (code, self.nodes()))
            self.assertEqual(
                f'cinder-dmclone: cinder-volume of {down}, which has to do '
                f'it, is down: start it. Nothing was changed on {down}.\n',
                err)

    def test_a_plan_without_one_of_them(self) -> None:
        self.down = {'a@dmclone'}
        code, lines, _ = self.drain(yes=False)
        self.assertEqual(2, code)
        self.assertEqual('Nothing was changed. With --yes it is done.',
                         lines[-1])
        self.down = {'a@dmclone', 'b@dmclone'}
        self.assertEqual((2, []), self.drain(yes=False)[:2])

    def test_stopped(self) -> None:
        """The other backend is not begun with."""
        self.enterContext(mock.patch.object(
            self.cloud.clock, 'sleep', side_effect=KeyboardInterrupt))
        code, _, err = self.drain()
        self.assertEqual(
            (2, 'cinder-dmclone: stopped; run it again, what has moved is '
             'not here any more\n'), (code, err))
        self.assertEqual(('c@dmclone', 'b@dmclone'), self.nodes())

    def test_stopped_before_anything_was_done(self) -> None:
        with mock.patch.object(remains, 'look',
                               side_effect=KeyboardInterrupt):
            self.assertEqual(
                (2, [], 'cinder-dmclone: stopped. Nothing was changed.\n'),
                self.drain(yes=False))


class SilentTest(test_drain.DrainTestCase):
    """b and c report in, and each reads several LVs of a, maybe."""

    LOANS = 5

    def setUp(self) -> None:
        super().setUp()
        self.asked: list[str] = []
        for node in (self.b, self.others[0]):
            for number in range(self.LOANS):
                self.lend(node, number)

    def lend(self, node: cloud.Node, number: int, name: str = '') -> None:
        group = self.a.group
        lv = names.data_lv(self.lv)
        group.retag(lv, add=[lv_tags.print_tag(lv_tags.LoanTag(
            2, VolumeId(f'c10e000{number}-0000-4000-8000-000000000000'),
            NodeName(name or node.name),
            LvUuid(f'c10e000{number}-0000-4000-8000-00000000000'
                   + node.host[0]),
            GroupUuid('gone'), 'iqn', group.volumes[lv].size))])
        group.flush()

    def look(self, *silent: cloud.Node) -> list[remains.Item]:
        def fate(message: ports.Message) -> ports.Fate:
            if message.request != 'Show':
                return ports.Fate.ARRIVES
            self.asked.append(message.target)
            return (ports.Fate.LOST if message.target in [
                node.name for node in silent] else ports.Fate.ARRIVES)
        self.cloud.fate = fate
        return remains.look(self.a.process.world)

    def test_who_does_not_answer_is_asked_once(self) -> None:
        items = self.look(self.b, self.others[0])
        self.assertEqual(['b@dmclone', 'c@dmclone'], sorted(self.asked))
        self.assertEqual(2 * self.LOANS, sum(
            item.reader is not None for item in items))

    def test_who_answers_is_asked_about_each(self) -> None:
        self.look(self.b)
        self.assertEqual(['b@dmclone'] + ['c@dmclone'] * self.LOANS,
                         sorted(self.asked))

    def test_services_that_were_removed(self) -> None:
        """All services are looked through once, not for each loan."""
        for number in range(self.LOANS):
            self.lend(self.b, number, f'removed{number}@dmclone')
        with mock.patch.object(
                ports.Peers, 'is_up', client.Peers.is_up), mock.patch.object(
                    services, '_read_all',
                    side_effect=services._read_all) as read:
            items = self.look()
        self.assertEqual(self.LOANS, sum(
            'removed' in item.why and 'which is down' in item.why
            for item in items))
        read.assert_called_once()

    def test_the_next_look_asks_again(self) -> None:
        self.look(self.b)
        self.look()
        self.assertEqual(1 + self.LOANS, self.asked.count('b@dmclone'))

    def test_a_question_that_follows_from_an_answer(self) -> None:
        """Whose owner does not answer: one question for all of its volumes.
        """
        for number in range(self.LOANS):
            self.cloud.db.volume(
                f'c10e000{number}-0000-4000-8000-000000000000',
                'c@dmclone#pool', status='available', provider_id='3')
        self.look(self.others[0])
        self.assertEqual(1, self.asked.count('c@dmclone'))

    def test_several_are_asked_at_a_time(self) -> None:
        """The second need not wait for the first to be silent."""
        both, ask = threading.Barrier(2, timeout=30), decisions.ask

        def met(world: World, node: NodeName,
                request: messages.Show) -> messages.Shown:
            if node not in self.asked:
                self.asked.append(node)
                both.wait()
            return ask(world, node, request)
        with mock.patch.object(decisions, 'ask', met):
            remains.look(self.a.process.world)
        self.assertEqual({'b@dmclone', 'c@dmclone'}, set(self.asked))


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
