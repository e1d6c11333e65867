# SPDX-License-Identifier: Apache-2.0
"""Which kernel the nodes run."""
from __future__ import annotations

import contextlib
import io
import os
import pathlib
import tempfile
import unittest
from typing import Any
from unittest import mock

from lab import archive, kernel
from lab.errors import LabError
from lab.kernel import Verdict

_SLOW = kernel.Kernel('distribution', '6.1', pathlib.Path('/usr/bin/slow'),
                      pathlib.Path('/modules'))
_HOUR = 3600


class NeedsTest(unittest.TestCase):

    def test_every_real_package_once(self) -> None:
        self.assertEqual(
            ['gcc-16-base', 'libc6', 'libgcc-s1', 'user-mode-linux'],
            archive.needs('user-mode-linux\n'
                          '  Depends: libc6\n'
                          '  Depends: <uml>\n'
                          'libc6\n'
                          ' |Depends: libgcc-s1\n'
                          'libgcc-s1\n'
                          '  Depends: libc6\n'
                          'gcc-16-base:amd64\n'
                          '<uml>\n'))


class ConfigurationTest(unittest.TestCase):

    def test_the_machine_is_left_alone(self) -> None:
        """No list, no cache and no hook of it is used."""
        text = archive.configuration(pathlib.Path('/own'))
        for name in ('Dir::Etc::sourcelist', 'Dir::State::lists',
                     'Dir::State::status', 'Dir::Cache'):
            self.assertRegex(text, f'(?m)^{name} "/own/')
        self.assertRegex(text, '(?m)^#clear APT::Update::Post-Invoke;$')


class VerdictTest(unittest.TestCase):

    def test_a_good_one_holds_until_the_machine_boots(self) -> None:
        verdict = Verdict('this', 0)
        self.assertTrue(verdict.holds('this', 1000 * _HOUR, True))
        self.assertFalse(verdict.holds('next', 0, False))

    def test_the_network_is_asked_again_the_next_day(self) -> None:
        verdict = Verdict('this', 0, 'no network')
        self.assertTrue(verdict.holds('this', _HOUR, False))
        self.assertFalse(verdict.holds('this', 25 * _HOUR, False))

    def test_whoever_wants_that_kernel_does_not_wait(self) -> None:
        self.assertFalse(Verdict('this', 0, 'no network').holds(
            'this', 0, True))

    def test_a_torn_file_is_none(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, 'verdict')
            self.assertIsNone(Verdict.read(path))
            for text in ('', '{"boot": "this"', '{"other": 1}'):
                path.write_text(text)
                self.assertIsNone(Verdict.read(path))


class TrialTest(unittest.TestCase):

    def test_the_word_of_the_trial_counts(self) -> None:
        self.assertEqual('', kernel.trial_fault(
            'No ubd\r\nkernel-trial: well\r\nreboot: Power down\r\n'))
        self.assertEqual('no modules', kernel.trial_fault(
            'kernel-trial: no modules\nreboot: Power down\n'))

    def test_else_the_last_it_said(self) -> None:
        self.assertEqual('its trial ended with: No seccomp',
                         kernel.trial_fault('Checking\nNo seccomp\n\n'))
        self.assertEqual('its trial ended with: nothing',
                         kernel.trial_fault(''))


class ChooseTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        kernel._chosen.cache_clear()
        self.addCleanup(kernel._chosen.cache_clear)
        self.fast = self._patched(kernel, '_fast', side_effect=LabError(
            'the fast kernel cannot be had: no network'))
        self._patched(kernel, '_distribution', return_value=_SLOW)
        self._patched(os, 'makedirs')
        self.enterContext(mock.patch.dict(os.environ))
        os.environ.pop(kernel.VARIABLE, None)

    def _patched(self, target: object, name: str,
                 **more: Any) -> mock.Mock:
        patch = mock.patch.object(target, name, **more)
        self.addCleanup(patch.stop)
        return patch.start()

    def test_without_the_fast_one_one_line_says_why(self) -> None:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertIs(_SLOW, kernel.choose())
            self.assertIs(_SLOW, kernel.choose())
        line, = said.getvalue().splitlines()
        self.assertIn('slower: the fast kernel cannot be had: no network',
                      line)
        self.fast.assert_called_once_with(asked=False)

    def test_nothing_stands_for_the_one_that_was_asked_for(self) -> None:
        kernel.use('fast')
        with self.assertRaisesRegex(LabError, 'no network'):
            kernel.choose()
        self.fast.assert_called_once_with(asked=True)

    def test_an_argument_goes_before_the_environment(self) -> None:
        os.environ[kernel.VARIABLE] = 'fast'
        self.assertIs(_SLOW, kernel.choose('distribution'))

    def test_an_unknown_name_is_an_error(self) -> None:
        os.environ[kernel.VARIABLE] = 'quick'
        with self.assertRaisesRegex(LabError, 'fast and distribution'):
            kernel.choose()


class CommandTest(unittest.TestCase):

    def test_the_node_learns_where_the_modules_are(self) -> None:
        found = kernel.Kernel('fast', '7.2', pathlib.Path('/linux'),
                              pathlib.Path('/modules'), ('seccomp=on',))
        self.assertEqual(['/linux', 'seccomp=on', 'MODULES=/modules'],
                         found.command())
        self.assertEqual('fast (user-mode-linux 7.2 seccomp=on)', str(found))
