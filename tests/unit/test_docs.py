# SPDX-License-Identifier: Apache-2.0
"""What the tree says of its own documents is so."""

from __future__ import annotations

import pathlib
import re
import typing

from oslotest import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ROOT / 'doc/source'
# A page or picture, as files outside doc/source name it.
_PAGE = re.compile(r'\bdoc/source/[\w./-]+\.\w+')


def texts() -> typing.Iterator[tuple[pathlib.Path, str]]:
    """Every file that a person reads, with what it says."""
    for pattern in ('*.md', '*.rst', '*.toml', '*.cfg', '*.ini'):
        for path in ROOT.glob(pattern):
            yield path, path.read_text()
    for folder in ('cinder_dmclone', 'doc/source', 'etc', 'lab',
                   'releasenotes', 'tests', 'tools'):
        for path in sorted((ROOT / folder).rglob('*')):
            if path.is_file() and '__pycache__' not in path.parts:
                yield path, path.read_text(errors='replace')


class DocumentsTest(base.BaseTestCase):

    def test_pages_that_are_named_exist(self):
        """A link of the README, or a page a test follows, was moved away."""
        missing = {f'{path.relative_to(ROOT)}: {page}'
                   for path, text in texts() for page in _PAGE.findall(text)
                   if not (ROOT / page).exists()}
        self.assertEqual(set(), missing)
