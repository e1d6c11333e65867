# SPDX-License-Identifier: Apache-2.0
"""Commands that give something up: a plan first, and one clear line."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import threading
from unittest import mock

from cinder import rpc

from cinder_dmclone.cli import decisions
from cinder_dmclone.cli import status
from cinder_dmclone.location import NodeName
from cinder_dmclone.peers import messages
from cinder_dmclone import units
from cinder_dmclone.world import World
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.service import test_recovery
from tests.unit.service import test_releasing
from tests.unit import test_cli


class DecisionsTest(test_recovery.LostTestCase):
    """The command is run on c; b is lost."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.lose(self.b)
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))

    def call(self, *, yes: bool = False, volume: str = '',
             command: str = 'recover') -> tuple[int, str, str]:
        """Exit status and what is said, on standard output and error."""
        out, err = io.StringIO(), io.StringIO()
        arguments = argparse.Namespace(
            command=command, of=volume or self.volume, yes=yes)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = decisions.run(arguments, [self.others[0].process.world])
        return code, out.getvalue(), err.getvalue()

    def assert_refused(self, code: int, why: str, yes: bool = True,
                       volume: str = '') -> None:
        """One line says why, and nothing was changed."""
        before = self.state()
        found, out, err = self.call(yes=yes, volume=volume)
        self.assertEqual((code, ''), (found, out), err)
        self.assertRegex(err, f'^cinder-dmclone: .*{why}.*\n$')
        self.assertNotIn('\n', err[:-1])
        self.assertEqual(before, self.state())

    def test_without_yes_it_is_only_told(self) -> None:
        before = self.state()
        code, out, err = self.call()
        self.assertEqual((0, ''), (code, err))
        self.assertRegex(
            out, f'^Volume {self.volume} becomes a@dmclone/.*\n'
            'gives up: all that was written to it since, on b@dmclone\n'
            'Nothing was changed. With --yes it is done.\n$')
        self.assertEqual(before, self.state())

    def test_with_yes_it_is_told_and_done(self) -> None:
        told = self.call()[1].splitlines()[:-1]
        code, out, err = self.call(yes=True)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([*told, 'Done.'], out.splitlines())
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)

    def test_done_before(self) -> None:
        self.call(yes=True)
        self.assert_refused(1, 'c@dmclone refused .*this node has nothing '
                            'that was lent')

    def test_a_volume_that_is_unknown(self) -> None:
        self.assert_refused(2, 'the database has no volume x. Nothing was '
                            'changed', volume='x')

    def test_a_volume_that_was_deleted(self) -> None:
        self.cloud.db.destroy(self.volume)
        self.assert_refused(2, 'the database has no volume')

    def test_a_volume_of_another_backend(self) -> None:
        self.cloud.db.update(self.volume, host='b@other#pool')
        self.assert_refused(2, 'is on b@other, of which backend this node is '
                            'none. Nothing was changed')

    def test_a_record_that_cannot_be_read(self) -> None:
        self.cloud.db.update(self.volume, provider_id='v2;3')
        self.assert_refused(2, 'Upgrade cinder-dmclone on the node that '
                            r'cannot read it[^.]*\. Nothing was changed')

    def test_the_service_that_has_to_do_it_is_down(self) -> None:
        self.lose(self.a)
        self.assert_refused(2, 'cinder-volume of a@dmclone, which has to do '
                            'it, is down: start it. Nothing was changed')

    def test_a_service_that_does_not_answer(self) -> None:
        self.a.kill()
        self.assert_refused(2, 'a@dmclone did not answer TakeBack: .*'
                            'Nothing was changed')

    def test_the_database_is_away(self) -> None:
        with self.cloud.db.away():
            code, out, err = self.call(yes=True)
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(err, '^cinder-dmclone: the database does not answer: '
                         '.*Nothing was changed.\n$')
        self.assertNotIn('\n', err[:-1])

    def test_the_message_bus_is_away(self) -> None:
        later = threading.Event()
        self.addCleanup(later.set)
        with mock.patch.object(decisions, '_BUS_SECONDS', -44.5), (
                mock.patch.object(ports.Peers, 'ask',
                                  lambda *rest: later.wait())):
            self.assert_refused(2, 'the message bus does not answer')

    def test_a_node_that_works(self) -> None:
        self.down.clear()
        self.assert_refused(1, 'a@dmclone refused TakeBack: .* has reported '
                            'in within service_down_time. Nothing was changed')

    def test_an_answer_that_is_lost(self) -> None:
        """It may have been done; again it says that it was."""
        asked: list[ports.Message] = []

        def fate(message: ports.Message) -> ports.Fate:
            asked.extend([message] * (message.request == 'TakeBack'))
            return (ports.Fate.UNANSWERED if len(asked) == 2
                    else ports.Fate.ARRIVES)
        self.cloud.fate = fate
        code, _, err = self.call(yes=True)
        self.assertEqual(2, code)
        self.assertIn('Whether it was done is not known: run the command '
                      'again', err)
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)

    def test_a_second_operator_was_faster(self) -> None:
        """Between the plan and the deed."""
        ask = decisions.ask

        def slowly(world: World, node: NodeName,
                   request: messages.TakeBack) -> messages.Plan:
            if request.record:
                ask(world, node, request)
            return ask(world, node, request)
        with mock.patch.object(decisions, 'ask', slowly):
            code, _, err = self.call(yes=True)
        self.assertEqual(1, code)
        self.assertRegex(err, '^cinder-dmclone: .*it is on this node, as '
                         'a@dmclone.*Nothing was changed.\n$')

    def test_the_lender_was_away_when_it_had_arrived(self) -> None:
        """The row names no lender: it is looked for where it is run."""
        row = self.cloud.row(self.volume)
        self.cloud.db.update(self.volume, provider_id='2')
        arguments = argparse.Namespace(
            command='recover', of=self.volume, yes=True)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(0, decisions.run(
                arguments, [self.a.process.world]))
        self.assertEqual((self.a.name, 3), (
            self.cloud.row(self.volume).node,
            self.cloud.row(self.volume).generation))
        self.assertNotEqual(row.owner, self.cloud.row(self.volume).owner)


class GiveUpTest(test_recovery.LostTestCase):
    """It is the lender that is lost."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.lose(self.a)
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))

    def call(self, yes: bool) -> tuple[int, list[str], str]:
        out, err = io.StringIO(), io.StringIO()
        arguments = argparse.Namespace(
            command='give-up', of=self.volume, yes=yes)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = decisions.run(arguments, [self.others[0].process.world])
        return code, out.getvalue().splitlines(), err.getvalue()

    def test_the_node_of_the_volume_does_it(self) -> None:
        before = self.state()
        code, told, err = self.call(yes=False)
        self.assertEqual((0, '', before), (code, err, self.state()))
        self.assertRegex(told[1], r'^gives up: \d+ bytes in \d+ ranges$')
        self.assertRegex(told[2], r'^gives up: bytes \d+ to \d+$')
        code, done, err = self.call(yes=True)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([*told[:-1], 'Done.'], done)
        self.assertNotEqual(before, self.state())
        self.b.process.loop.run_once(everything=True)
        seen, = status.look(self.b.process.world)
        self.assertEqual('GIVEN UP', seen.problem)
        self.assertRegex(status.describe(seen), r'hydrated \[=* *\] 12 % from '
                         rf'a@dmclone/{self.lv} \(GIVEN UP\), front closed')

    def test_refused(self) -> None:
        self.down.clear()
        before = self.state()
        code, out, err = self.call(yes=True)
        self.assertEqual((1, []), (code, out))
        self.assertRegex(
            err, '^cinder-dmclone: Node b@dmclone refused GiveUp: .* within '
            'service_down_time. Nothing was changed.\n$')
        self.assertEqual(before, self.state())

    def test_done_before(self) -> None:
        """Again it is told what is missing, and no harm is done."""
        self.call(yes=True)
        before = self.state()
        code, out, err = self.call(yes=True)
        self.assertEqual((0, '', before), (code, err, self.state()))
        self.assertIn('fail already', out[0])


class ForgetTest(base.CloudTestCase):
    """An LV of a that the database knows nothing of."""

    stray_lv = '5a5a5a5a-0000-4000-8000-000000000000'

    def setUp(self) -> None:
        super().setUp()
        self.stray = f'volume-{self.stray_lv}'
        self.a.group.create(self.stray, units.Bytes.from_gib(1), [])
        self.a.group.flush()
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))

    def call(self, lv: str, *backends: cloud.Node,
             yes: bool = True) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        arguments = argparse.Namespace(command='forget', of=lv, yes=yes)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = decisions.run(arguments, [
                node.process.world for node in backends])
        return code, out.getvalue(), err.getvalue()

    def test_told_and_done(self) -> None:
        code, told, err = self.call(self.stray_lv, self.a, yes=False)
        self.assertEqual((0, ''), (code, err))
        self.assertIn(f'LV {self.stray} on a@dmclone is deleted. It was kept '
                      'because the database knows nothing of this LV', told)
        self.cloud.settle()
        self.assertIn(self.stray, self.a.group.volumes)
        code, done, err = self.call(self.stray_lv, self.a)
        self.assertEqual((0, 'Done.', ''),
                         (code, done.splitlines()[-1], err))
        self.cloud.settle()
        self.assertNotIn(self.stray, self.a.group.volumes)

    def test_bad_input(self) -> None:
        volume = self.volume
        for lv, node, code, why in (
                ('x', self.a, 2, 'this node has no LV volume-x'),
                (self.stray_lv, self.b, 2, 'this node has no LV '
                 + self.stray),
                (volume, self.a, 1, f'the row of volume {volume} names it')):
            found, out, err = self.call(lv, node)
            self.assertEqual((code, ''), (found, out))
            self.assertRegex(err, f'^cinder-dmclone: .*{why}.*Nothing was '
                             'changed.\n$')
        self.cloud.settle()
        self.assertEqual({f'volume-{volume}', self.stray},
                         set(self.a.group.volumes))

    def test_the_group_cannot_be_read(self) -> None:
        self.a.group.lost = True
        code, out, err = self.call(self.stray_lv, self.a)
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(err, '^cinder-dmclone: .*not found.*\n$')

    def test_the_group_of_another_backend_cannot_be_read(self) -> None:
        """It is told only if the LV may be there."""
        self.b.group.lost = True
        code, out, err = self.call(self.stray_lv, self.b, self.a)
        self.assertEqual((0, 'Done.', ''),
                         (code, out.splitlines()[-1], err))
        code, out, err = self.call('x', self.b, self.a)
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(
            err, '^cinder-dmclone: this node has no LV volume-x that can be '
            r'read: b@dmclone: .*not found[^.]*\. Nothing was changed.\n$')

    def test_the_service_is_down(self) -> None:
        with mock.patch.object(ports.Peers, 'is_up', return_value=False):
            code, out, err = self.call(self.stray_lv, self.a)
        self.assertEqual((2, ''), (code, out))
        self.assertIn('cinder-volume of a@dmclone, which has to do it, is '
                      'down: start it. Nothing was changed.', err)


class ReleaseTest(test_releasing.ReleaseTestCase):
    """The volume has moved on from a lost node, to which a still lends."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))
        attachment, _ = self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.attach(self.volume, self.others[0])

    def call(self, lv: str, yes: bool = True) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        arguments = argparse.Namespace(command='release', of=lv, yes=yes)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = decisions.run(arguments, [self.a.process.world])
        return code, out.getvalue(), err.getvalue()

    def test_told_and_done(self) -> None:
        self.lose(self.b)
        before = self.state()
        code, told, err = self.call(self.lv, yes=False)
        self.assertEqual((0, '', before), (code, err, self.state()))
        self.assertIn('gives up: what b@dmclone/', told)
        code, done, err = self.call(self.lv)
        self.assertEqual((0, 'Done.', ''),
                         (code, done.splitlines()[-1], err))
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)

    def test_bad_input(self) -> None:
        before = self.state()
        for lv, code, why in (
                ('x', 2, 'this node has no LV volume-x'),
                (self.lv, 1, 'b@dmclone is logged in to this node')):
            found, out, err = self.call(lv)
            self.assertEqual((code, ''), (found, out))
            self.assertRegex(err, f'^cinder-dmclone: .*{why}.*Nothing was '
                             'changed.\n$')
        self.assertEqual(before, self.state())

    def test_the_service_is_down(self) -> None:
        self.down.add(self.a.name)
        code, out, err = self.call(self.lv)
        self.assertEqual((2, ''), (code, out))
        self.assertIn('cinder-volume of a@dmclone, which has to do it, is '
                      'down: start it. Nothing was changed.', err)


class CommandLineTest(base.TestCase):

    def test_words_that_are_missing(self) -> None:
        for words in (['recover'], ['recover', 'x'], ['give-up'], ['forget'],
                      ['release', 'x'], ['release', '--force'],
                      ['recover', '--from-lender'],
                      ['move-snapshot', 'x']):
            done = self.run_with_config(test_cli.CONF, test_cli.MAIN, *words)
            self.assertEqual((2, ''), (done.returncode, done.stdout))
            self.assertIn('the following arguments are required', done.stderr)

    def test_who_may_not_read_the_configuration(self) -> None:
        program = '''
import os
import sys

os.chmod(sys.argv[2], 0)
''' + test_cli.MAIN
        # Root may read all, but for this; the checkout may be root's alone.
        rights = '-dac_override,-dac_read_search'
        under = [] if os.geteuid() else ['setpriv', '--bounding-set', rights]
        done = self.run_with_config(test_cli.CONF, program, 'recover', 'x',
                                    '--from-lender', under=under)
        self.assertEqual((2, ''), (done.returncode, done.stdout))
        self.assertRegex(done.stderr, '^cinder-dmclone: .*\n$')
