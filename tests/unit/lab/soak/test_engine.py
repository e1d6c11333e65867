# SPDX-License-Identifier: Apache-2.0
"""Steps are taken to their end, and whatever a cloud does wrong is found."""
from __future__ import annotations

import json
import pathlib
import tempfile
import time
import unittest
from unittest import mock

import ddt

from lab import ledger
from lab.show import Failure
from lab.soak import engine, model, outages, patience
from lab.soak.choice import Choice
from lab.soak.model import Outage, Step
from tests.unit.lab.soak.cloud import AREA, Cloud

HERE = Step('create', 'v1', node=1, gib=1), Step('attach', 'v1', node=1)

# A mistake, the steps by which it shows, and how.
WRONG: list[tuple[str, tuple[Step, ...], str]] = [
    ('late', (Step('write', 'v1'), Step('snapshot', 's2', 'v1'),
              Step('migrate', 'v1', node=2), Step('verify', 'v1'),
              Step('born', 'v3', 's2', gib=1),
              Step('attach', 'v3', node=2)), 'v3 .* findings'),
    ('shared', (Step('clone', 'v2', 'v1', gib=1),
                Step('migrate', 'v1', node=2), Step('verify', 'v1'),
                Step('attach', 'v2', node=2)), 'v2 .* (foreign|future)'),
    ('loses', (Step('detach', 'v1'), Step('attach', 'v1', node=2)),
     'lost: zeros'),
    ('unreverted', (Step('snapshot', 's2', 'v1'),
                    Step('migrate', 'v1', node=2), Step('detach', 'v1'),
                    Step('revert', 'v1', 's2'),
                    Step('attach', 'v1', node=3)), 'v1 .* findings'),
    ('small', (Step('detach', 'v1'), Step('extend', 'v1', gib=2),
               Step('attach', 'v1', node=1)), 'bytes, not'),
    ('error', (Step('snapshot', 's2', 'v1'),), 's2 was error'),
    ('unasked', (Step('snapshot', 's2', 'v1'), Step('detach', 'v1'),
                 Step('delete', 'v1')),
     'not refused, although it has snapshots'),
    ('stays', (Step('detach', 'v1'), Step('delete', 'v1')),
     'error_deleting, not deleted')]


class EngineTestCase(unittest.TestCase):

    mistakes = ''

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.folder = pathlib.Path(folder)
        clock = mock.Mock(monotonic=time.monotonic)
        for patch in (mock.patch.object(ledger, 'AREA', AREA),
                      mock.patch.object(outages, 'time', clock),
                      mock.patch.multiple(patience, _PAUSE=0.01),
                      mock.patch.object(engine, 'Checker', self.checker)):
            patch.start()
            self.addCleanup(patch.stop)
        self.left: list[str] = []

    def checker(self, *args: object) -> mock.Mock:
        return mock.Mock(check=lambda: self.left)

    def engine(self, mistakes: str = '', seed: int = 1,
               calm: bool = True) -> engine.Engine:
        """One in a cloud that does some things wrong."""
        self.cloud = Cloud(self.folder, mistakes)
        self.addCleanup(self.cloud.close)
        self.journal = engine.Journal(self.folder / 'journal')
        found = engine.Engine(
            self.cloud, model.GIB,  # type: ignore[arg-type]
            Choice(seed, 3, calm), self.journal, mock.Mock())
        self.addCleanup(found._actor.close)
        return found

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line
                in self.journal.path.read_text().splitlines()]


@ddt.ddt
class EngineTest(EngineTestCase):

    def take(self, *steps: Step, mistakes: str = '') -> engine.Engine:
        found = self.engine(mistakes)
        for step in (*HERE, *steps):
            found.step(step)
        return found

    def lines_of(self, *steps: Step) -> list[dict[str, object]]:
        """What is written down of steps."""
        self.take(*steps)
        return self.lines()[-len(steps):]

    def test_a_calm_story(self) -> None:
        found = self.engine(seed=3)
        found.steps(12)
        numbers = [line['number'] for line in self.lines()[:-1]]
        self.assertEqual(list(range(1, found.number + 1)), numbers)
        self.assertEqual({'left': []}, self.lines()[-1])
        self.assertEqual(3 * found.number, len(found.samples))
        self.assertEqual(0, found.tries)

    def test_a_story_with_outages(self) -> None:
        found = self.engine(seed=5, calm=False)
        found.steps(12)
        self.assertTrue(set(found.counts) & set(outages.KINDS))
        self.assertEqual({}, self.cloud.rows['volumes'])

    @ddt.data(*WRONG)
    @ddt.unpack
    def test_what_is_wrong_is_found(self, mistake: str,
                                    steps: tuple[Step, ...],
                                    finding: str) -> None:
        with self.assertRaisesRegex(Failure, finding):
            self.take(*steps, mistakes=mistake)
        last = self.lines()[-1]
        # By the last step, which names itself.
        self.assertEqual(len(HERE) + len(steps), last['number'])
        self.assertRegex(str(last['error']),
                         f'step {last["number"]} .{steps[-1]}.*')

    @ddt.data(*(case[:2] for case in WRONG if case[0] != 'unasked'))
    @ddt.unpack
    def test_what_is_right_is_not(self, _: str,
                                  steps: tuple[Step, ...]) -> None:
        """The same steps in a cloud without mistakes."""
        self.assertEqual([[]] * len(steps), [
            line['said'] for line in self.lines_of(*steps)])

    def test_what_was_refused_changes_nothing(self) -> None:
        found = self.take(Step('snapshot', 's2', 'v1'), Step('detach', 'v1'),
                          Step('delete', 'v1'),
                          Step('extend', 'v1', gib=1))
        self.assertEqual(['v1'], list(found._actor.model.volumes))
        self.assertIn('snapshots', str(self.lines()[-2]['said']))

    def test_a_refusal_that_passes(self) -> None:
        """It is asked again, and that is written down."""
        found = self.take(Step('snapshot', 's2', 'v1'), Step('detach', 'v1'),
                          Step('revert', 'v1', 's2'), mistakes='said')
        self.assertEqual(1, found.tries)
        self.assertIn('dmclone_max_copies', str(self.lines()[-1]['said']))

    def test_an_error_in_peace(self) -> None:
        found = self.take()
        self.cloud.failing = 1
        with self.assertRaisesRegex(Failure, 'the answer was lost'):
            found.step(Step('snapshot', 's2', 'v1'))

    @ddt.data(
        Step('create', 'v2', node=2, gib=1), Step('snapshot', 's2', 'v1'),
        Step('clone', 'v2', 'v1', gib=2), Step('migrate', 'v1', node=2),
        Step('detach', 'v1'))
    def test_lost_answers_after_an_outage(self, step: Step) -> None:
        """What was asked for is there once, and the story goes on."""
        found = self.take()
        found.step(Step('wait', outage=Outage('kill', 2, 0, 1)))
        self.cloud.failing = 2
        found.step(step)
        self.assertLess(0, found.tries)
        model = found._actor.model
        self.assertEqual([len(model.volumes), len(model.snapshots)], [
            len(self.cloud.rows[kind]) for kind in ('volumes', 'snapshots')])
        found.close()

    def test_what_nobody_works_on_after_an_outage(self) -> None:
        """It is removed and made again, when it has had its time."""
        found = self.take()
        self.cloud.forgetting = 2
        with mock.patch.multiple(patience, STUCK=0.1, GRACE=0.01):
            found.step(Step('clone', 'v2', 'v1', gib=1,
                            outage=Outage('rabbitmq', 0, 0, 1)))
        self.assertEqual(['clone v2 of v1 1 GiB (rabbitmq for 1 s): volume '
                          'v2 stays creating'] * 2, self.lines()[-1]['said'])
        self.assertEqual(2, len(self.cloud.rows['volumes']))

    def test_what_nobody_works_on_in_peace(self) -> None:
        found = self.take()
        self.cloud.forgetting = 1
        with mock.patch.multiple(patience, STUCK=0.1, LIMIT=0.3):
            with self.assertRaisesRegex(Failure, 'v2 stays creating'):
                found.step(Step('clone', 'v2', 'v1', gib=1))

    def test_servers_of_a_node_that_is_reset(self) -> None:
        found = self.take(Step('write', 'v1'),
                          Step('wait', outage=Outage('reset', 1, 0, 1)))
        self.assertFalse(found._actor.model.volumes['v1'].writing)
        found.step(Step('write', 'v1'))
        found.close()

    def test_the_end_believes_nothing(self) -> None:
        """What was compared before is compared again."""
        found = self.take(Step('verify', 'v1'))
        volume, = self.cloud.rows['volumes']
        with self.cloud.file(volume).open('r+b') as file:
            file.write(bytes(AREA))
        with self.assertRaisesRegex(Failure, 'lost: zeros'):
            found.close()

    def test_what_is_left_is_told(self) -> None:
        found = self.take()
        self.left = ['LV x']
        with self.assertRaisesRegex(Failure, 'left behind: LV x'):
            found.close()
