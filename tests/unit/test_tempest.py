# SPDX-License-Identifier: Apache-2.0
"""What is expected of tempest's tests: of each that it passes, or fails."""
from __future__ import annotations

import pathlib
import tempfile
import unittest

import yaml

from tests.tempest import chosen
from tests.tempest import settings
from tests.unit import test_packaging


class Samples:
    """Where no loader looks for tests."""

    class Case(unittest.TestCase):

        def test_good(self) -> None:
            pass

        def test_bad(self) -> None:
            self.fail('a feature is missing')

        def test_skipped(self) -> None:
            self.skipTest('no Nova')

    class BadFixture(unittest.TestCase):

        @classmethod
        def setUpClass(cls) -> None:
            raise ValueError('a snapshot')

        def test_good(self) -> None:
            pass


def impossible(test: unittest.TestCase) -> unittest.TestResult:
    """What comes of a test that is excluded."""
    result = unittest.TestResult()
    chosen.Impossible(test, 'no snapshots').run(result)
    return result


class ImpossibleTest(unittest.TestCase):

    def test_one_that_fails_is_as_expected(self) -> None:
        self.assertTrue(impossible(Samples.Case('test_bad')).wasSuccessful())

    def test_one_whose_class_fails_too(self) -> None:
        result = impossible(Samples.BadFixture('test_good'))
        self.assertTrue(result.wasSuccessful())

    def test_one_that_passes_is_an_error(self) -> None:
        (_, message), = impossible(Samples.Case('test_good')).failures
        self.assertIn('need not be in exclude.txt', message)
        self.assertIn('no snapshots', message)

    def test_one_that_is_skipped_says_nothing(self) -> None:
        result = impossible(Samples.Case('test_skipped'))
        self.assertEqual([], result.failures)
        self.assertEqual('no Nova', result.skipped[0][1])

    def test_it_has_the_name_of_the_test(self) -> None:
        test = Samples.Case('test_bad')
        self.assertEqual(test.id(), chosen.Impossible(test, '').id())


class ChoiceTest(unittest.TestCase):

    def choice(self, excluded: dict[str, str],
               driver: dict[str, str]) -> chosen.Choice:
        return chosen.Choice(
            map(Samples.Case, ('test_good', 'test_bad', 'test_skipped')),
            excluded, driver)

    def test_short_is_what_reaches_the_driver_and_can_pass(self) -> None:
        choice = self.choice({r'\.test_bad': 'why'},
                             {r'\.test_(good|bad)': 'what'})
        self.assertEqual([Samples.Case('test_good')], choice.short())

    def test_long_is_all(self) -> None:
        choice = self.choice({r'\.test_bad': 'why'}, {})
        kinds = {test.id().rpartition('.')[2]: type(test)
                 for test in choice.long()}
        self.assertEqual({'test_good': Samples.Case,
                          'test_skipped': Samples.Case,
                          'test_bad': chosen.Impossible}, kinds)

    def test_reaching_is_what_reaches_the_driver(self) -> None:
        choice = self.choice({r'\.test_bad': 'why'},
                             {r'\.test_(good|bad)': 'what'})
        self.assertEqual(
            {'test_good': Samples.Case, 'test_bad': chosen.Impossible},
            {test.id().rpartition('.')[2]: type(test)
             for test in choice.reaching()})

    def test_a_name_that_no_test_has(self) -> None:
        gone, nothing = {'gone': 'why'}, dict[str, str]()
        for lists in (gone, nothing), (nothing, gone):
            with self.assertRaisesRegex(ValueError, 'gone'):
                self.choice(*lists)


class ReadTest(unittest.TestCase):

    def test_a_line_without_a_reason(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'list')
            path.write_text('# words\n\nGood  # why\nBad\n')
            with self.assertRaisesRegex(ValueError, 'Bad'):
                chosen.read(path)
            path.write_text('# words\n\nGood[a-z]  # why\n')
            self.assertEqual({'Good[a-z]': 'why'}, chosen.read(path))

    def test_the_lists_that_are_used(self) -> None:
        self.assertTrue(chosen.read(chosen.DRIVER))
        chosen.read(chosen.EXCLUDED)
        folder = test_packaging.ROOT / 'tests/tempest_nova'
        self.assertTrue(chosen.read(folder / 'wanted.txt'))
        chosen.read(folder / 'exclude.txt')

    def test_zuul_leaves_out_the_same(self) -> None:
        jobs = [part['job'] for part in yaml.safe_load(
            (test_packaging.ROOT / '.zuul.yaml').read_text())
            if 'job' in part]
        self.assertTrue(jobs)
        for job in jobs:
            self.assertEqual(
                '|'.join(chosen.read(chosen.EXCLUDED)),
                job['vars'].get('tempest_exclude_regex', ''), job['name'])


class SettingsTest(unittest.TestCase):

    def test_missing_features_are_not_switched_off(self) -> None:
        """What is skipped is never seen to pass."""
        features = settings.sections(pathlib.Path('/nowhere'))[
            'volume-feature-enabled']
        for name in ('snapshot', 'clone', 'manage_volume', 'volume_revert'):
            self.assertTrue(features[name], name)
