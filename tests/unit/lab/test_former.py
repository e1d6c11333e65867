# SPDX-License-Identifier: Apache-2.0
"""What there was to upgrade from, as the history of a checkout has it."""
from __future__ import annotations

import pathlib
import tempfile
import unittest
from unittest import mock

from lab import former, virtualenv
from lab.errors import CommandError
from tests.unit import test_wheel


class HistoryTest(unittest.TestCase):

    def setUp(self) -> None:
        self.directory = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.checkout = self.directory / 'checkout'
        self.checkout.mkdir()
        self.enterContext(mock.patch.object(virtualenv, 'CHECKOUT',
                                            self.checkout))
        self.git('init', '--quiet')
        self.day = 0

    def git(self, *words: str, **variables: str) -> None:
        test_wheel.run(*test_wheel.GIT, *words, cwd=self.checkout, **variables)

    def commit(self, text: str, *tags: str) -> None:
        (self.checkout / 'file').write_text(text)
        self.git('add', 'file')
        self.day += 1
        for words in ['commit', '--quiet', '-m', text], *(
                ['tag', '-m', tag, tag] for tag in tags):
            self.git(*words,
                     GIT_COMMITTER_DATE=f'2025-01-{self.day:02}T00:00:00Z')

    def test_the_last_release_before_this(self) -> None:
        self.commit('one')
        self.assertEqual('', former.release())
        self.commit('two', '0.9.0')
        # Nothing is upgraded from itself.
        self.assertEqual('', former.release())
        self.commit('three', '0.10.0')
        self.assertEqual('0.9.0', former.release())
        self.commit('four')
        self.assertEqual('0.10.0', former.release())

    def test_sources_without_a_history(self) -> None:
        with mock.patch.object(virtualenv, 'CHECKOUT', self.directory):
            self.assertEqual('', former.release())

    def test_what_a_revision_had(self) -> None:
        self.commit('one', '0.1.0')
        self.commit('two')
        place = self.directory / 'former/checkout'
        former.export('0.1.0', place)
        self.assertEqual(['file'], [path.name for path in place.iterdir()])
        self.assertEqual('one', (place / 'file').read_text())
        self.assertEqual([place], list(place.parent.iterdir()))

    def test_a_revision_that_there_is_not(self) -> None:
        with self.assertRaisesRegex(CommandError, 'nowhere'):
            former.export('nowhere', self.directory / 'former/checkout')
