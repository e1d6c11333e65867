# SPDX-License-Identifier: Apache-2.0
"""What tools/test says of what failed, and what it leaves: nothing."""
from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import subunit

from lab.processes import alive, wait_for
from tools import arguments
from tools import outcome
from tools import shares
from tools import stages

# As stestr prints it.
_LOG = '''\
{0} tests.a.A.test_good [0.000148s] ... ok
{0} tests.a.A.test_first [0.002610s] ... FAILED

Captured /var/tmp/log:
~~~~~~~~~~~~~~~~~~~~~~
    ======
of a log

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "a.py", line 12, in test_first
    raise KeyError('x')

    KeyError: 'x'


Captured traceback-1:
~~~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "a.py", line 6, in finish
    raise ValueError('second')

    ValueError: second

{1} tests.a.A.test_other [0.000148s] ... ok
{1} tests.a.A.test_last [0.007779s] ... FAILED

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

    LabError: last


==============================
Failed 2 tests - output below:
==============================

tests.a.A.test_first
--------------------

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

    KeyError: 'x'

======
Totals
======
'''


class RaisedTest(unittest.TestCase):

    def test_each_error_once_by_test(self) -> None:
        found = outcome.raised(_LOG).splitlines()
        self.assertEqual(
            ['tests.a.A.test_first', 'tests.a.A.test_first',
             'tests.a.A.test_last'],
            [line for line in found if line.startswith('tests')])
        self.assertEqual(
            ["KeyError: 'x'", 'ValueError: second', 'LabError: last'],
            [line.strip() for line in found if 'Error: ' in line])
        self.assertNotIn('of a log', '\n'.join(found))

    def test_nothing_failed(self) -> None:
        self.assertEqual('', outcome.raised('{0} tests.a [1s] ... ok\n'))


class TimesTest(unittest.TestCase):

    def test_details_at_the_end_are_no_begin(self) -> None:
        begin = datetime.datetime.fromisoformat('2026-01-01T00:00:00+00:00')
        end = begin + datetime.timedelta(seconds=7)
        with tempfile.NamedTemporaryFile() as file:
            stream = subunit.StreamResultToBytes(file)
            for name in 'a.test_x[id-1,smoke]', 'a.test_y':
                stream.status(test_id=name, test_status='inprogress',
                              timestamp=begin)
                stream.status(test_id=name, file_name='log', file_bytes=b'x',
                              timestamp=end)
                stream.status(test_id=name, test_status='success',
                              timestamp=end)
            file.flush()
            found = outcome.times([
                sys.executable, '-c', 'import pathlib, sys\nsys.stdout.buffer'
                '.write(pathlib.Path(sys.argv[1]).read_bytes())', file.name])
        self.assertEqual({'a.test_x[id-1,smoke]': 7.0, 'a.test_y': 7.0},
                         found)


# A stage like stestr: a worker that does not end when asked, and a process in
# a session of its own below one that has ended already.
_STAGE = '''
trap "" TERM
setsid sh -c 'sleep 60 & echo $! >orphan' &
sh -c 'trap "" TERM; echo $$ >worker; while :; do sleep 60; done' &
trap - TERM
mktemp >temporary
until [ -s orphan ] && [ -s worker ]; do sleep 0.05; done
echo $$ >stage
wait
'''
_RUNNER = '''
import pathlib, sys
from unittest import mock
from lab import remains
from tools import arguments
from tools import outcome
from tools import stages
place = pathlib.Path(sys.argv[1])
with mock.patch.multiple(
        stages, ROOT=place, LOGS=place / 'logs', GRACE=1,
        _main=lambda: stages.execute('stage', ['sh', '-c', sys.argv[2]]),
        remains=mock.Mock(temporary=remains.temporary)):
    try:
        sys.exit(stages.main())
    except stages.StageFailed as error:
        sys.exit(str(error))
'''


class EndTest(unittest.TestCase):

    def setUp(self) -> None:
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.place = pathlib.Path(directory)
        # As a shell starts what is to run in the background.
        self.runner = subprocess.Popen(
            ['env', '--ignore-signal=INT', sys.executable, '-c', _RUNNER,
             directory, _STAGE], cwd=pathlib.Path(
                 stages.__file__).parents[1],
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.runner.communicate)
        self.addCleanup(self.runner.kill)
        wait_for('the stage', (self.place / 'stage').exists)
        self.pids = [self.pid(name) for name in ('stage', 'worker', 'orphan')]
        self.addCleanup(self.kill)

    def pid(self, name: str) -> int:
        return int(str(wait_for(
            name, lambda: (self.place / name).read_text().strip())))

    def kill(self) -> None:
        for pid in filter(alive, self.pids):
            os.kill(pid, signal.SIGKILL)

    def assert_ended(self, status: int) -> None:
        self.assertEqual(status, self.runner.wait(60))
        self.assertEqual([], list(filter(alive, self.pids)))
        left = pathlib.Path((self.place / 'temporary').read_text().strip())
        self.assertFalse(left.parent.exists())

    def test_sigterm_ends_all(self) -> None:
        self.runner.terminate()
        self.assert_ended(130)

    def test_sigint_ends_all_although_a_shell_let_it_be_ignored(self) -> None:
        self.runner.send_signal(signal.SIGINT)
        self.assert_ended(130)

    def test_a_second_signal_does_not_stop_it(self) -> None:
        self.runner.terminate()
        wait_for('the end of the stage', lambda: not alive(self.pids[0]))
        self.runner.terminate()
        self.runner.send_signal(signal.SIGINT)
        self.assert_ended(130)

    def test_a_stage_that_is_killed_leaves_nothing(self) -> None:
        os.kill(self.pids[0], signal.SIGKILL)
        self.assert_ended(1)


class ArgumentsTest(unittest.TestCase):

    def test_what_takes_long(self) -> None:
        for option in '--machine', '--tempest-nova':
            said = io.StringIO()
            with (mock.patch.object(sys, 'argv', ['tools/test', option]),
                  contextlib.redirect_stderr(said),
                  self.assertRaises(SystemExit)):
                arguments.parse()
            self.assertIn(f'{option} is for --long', said.getvalue())

    def test_what_is_run_without_being_asked_for(self) -> None:
        self.assertEqual({*stages.IN_LABS}, {
            *stages.ALWAYS, *stages.WITH_LONG, stages.MACHINE})

    def test_the_length_is_for_one_kernel(self) -> None:
        asked = argparse.Namespace(long=True)
        found = stages.in_labs(asked, {}, pathlib.Path(),
                               ['fast', 'distribution'])
        self.assertEqual(
            ['functional-fast-long', 'nova-fast-long', 'tempest-fast-long',
             'tempest_nova-fast-long', 'functional-distribution',
             'nova-distribution'],
            [stage.record for stage in found])
        alone, = stages.in_labs(asked, {'nova': ['Traps']}, pathlib.Path(),
                                ['distribution'])
        self.assertEqual(('nova', 'nova-distribution-long', ['Traps']),
                         (alone.title, alone.record, alone.words))

    def test_what_a_test_takes_that_was_not_recorded(self) -> None:
        """As long as ordinarily, on the slow kernel several times that."""
        times = {'functional-fast': {'one': 2.0, 'two': 4.0, 'long': 0.001},
                 'functional-fast-long': {'two': 40.0}}
        with mock.patch.object(shares, 'recorded', lambda: times):
            full, slow = (
                stages.InLabs('functional', kernel, '', pathlib.Path(), (),
                              long).known()
                for kernel, long in (('fast', True), ('distribution', False)))
        self.assertEqual({'one': 2.0, 'two': 40.0}, full)
        self.assertEqual(times['functional-fast'], {
            test: seconds / stages.SLOWER for test, seconds in slow.items()})

    def test_one_kernel_is_beside_a_machine(self) -> None:
        """The others run on both."""
        found = {}
        for words in ('--functional', '--machine'):
            with (mock.patch.object(sys, 'argv',
                                    ['tools/test', '--long', words]),
                  mock.patch.object(os, 'geteuid', return_value=0)):
                found[words] = stages._kernels(arguments.parse())
        self.assertEqual({'--functional': [None, 'distribution'],
                          '--machine': [None]}, found)
