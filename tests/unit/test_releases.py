# SPDX-License-Identifier: Apache-2.0
"""The driver beside a Cinder that is there: which one, and what it brings."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import typing
import unittest

from packaging import requirements
from packaging import specifiers
from packaging import version

from tests.unit import test_packaging

ROOT = test_packaging.ROOT
# Names that moved between releases, and where alone they may be imported.
MOVED = {'cinder.db.api', 'cinder.db.models', 'cinder.db.sqlalchemy',
         'cinder.db.sqlalchemy.api', 'cinder.db.sqlalchemy.models'}
SHIM = ROOT / 'cinder_dmclone/releases.py'


def imported(text: str) -> typing.Iterator[str]:
    """Everything that may be a module in the imports of a source text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def required(name: str) -> dict[str, specifiers.SpecifierSet]:
    """What an installed package requires, and which releases of it."""
    return {one.name.lower(): one.specifier for one in
            map(requirements.Requirement,
                importlib.metadata.requires(name) or ())
            if one.marker is None or one.marker.evaluate({'extra': ''})}


class ReleaseTestCase(unittest.TestCase):

    @unittest.skipUnless('DMCLONE_CINDER' in os.environ,
                         'DMCLONE_CINDER names no release')
    def test_runs_on_the_release_that_was_asked_for(self) -> None:
        """Not on another one that a resolver has chosen."""
        installed = version.Version(importlib.metadata.version('cinder'))
        self.assertEqual(int(os.environ['DMCLONE_CINDER']), installed.major)

    def test_one_module_knows_what_releases_name_differently(self) -> None:
        self.assertTrue(MOVED & {*imported(SHIM.read_text())})
        for path in test_packaging.python_files('cinder_dmclone', 'lab',
                                                'tests'):
            if path != SHIM:
                self.assertEqual(
                    set(), MOVED & {*imported(path.read_text())}, str(path))

    def test_cinder_itself_requires_what_we_require(self) -> None:
        """So pip has nothing to install or to replace beside a Cinder."""
        # The client of Prometheus comes by way of the message bus.
        theirs = (required('oslo.metrics') | required('oslo.messaging')
                  | required('cinder'))
        self.assertIn('oslo.messaging', required('cinder'))
        self.assertIn('oslo.metrics', required('oslo.messaging'))
        for text in (ROOT / 'requirements.txt').read_text().splitlines():
            if text.startswith('#'):
                continue
            ours = requirements.Requirement(text.partition('#')[0])
            lowest, = [one.version for one in theirs[ours.name.lower()]
                       if one.operator == '>=']
            self.assertTrue(ours.specifier.contains(lowest),
                            f'{text}; Cinder is content with {lowest}')
