# SPDX-License-Identifier: Apache-2.0
"""Whatever ``cinder-dmclone check`` says has its cure on a page."""

from __future__ import annotations

import ast
import re
import typing

from oslotest import base

from tests.unit import test_packaging

ROOT = test_packaging.ROOT
PAGE = ROOT / 'doc/source/admin/check.rst'
# Where its lines come from: all functions of a file, or some.
SOURCES: dict[str, set[str]] = {
    'preflight.py': set(),
    'cli/check.py': {'_rootwrap', '_start_helper', '_restorers'},
    'host/lvm_filter.py': {'advice'},
    'host/iscsi/targets.py': {'check'},
    'host/iscsi/initiator.py': {'check'},
    'privileged/configfs.py': set(),
    'privileged/iscsi.py': {'initiator_name'},
    'privileged/lio.py': {'_rtslib', '_exclusive'},
}
# What a sentence is at least; others are names and parts of one.
_WORDS = 3
# Nothing that is said: it is looked for in what a command says.
_SOUGHT = ' failed with status '
# What one of the code's values may be on the page.
_ANY = '.{0,60}?'


def sentences(path: str, functions: set[str]) -> typing.Iterator[str]:
    """Each text that a function has, as a pattern; docstrings left out."""
    for node in ast.walk(ast.parse(
            (ROOT / 'cinder_dmclone' / path).read_text())):
        if isinstance(node, ast.FunctionDef) and (
                not functions or node.name in functions):
            for statement in node.body[bool(ast.get_docstring(node)):]:
                yield from filter(None, map(_pattern, _texts(statement)))


def _texts(node: ast.AST) -> typing.Iterator[ast.AST]:
    if isinstance(node, (ast.JoinedStr, ast.Constant)):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _pattern(node: ast.AST) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    said = [part.value if isinstance(part, ast.Constant) else None
            for part in parts]
    fixed = ' '.join(part for part in said if isinstance(part, str))
    if len(fixed.split()) < _WORDS or fixed == _SOUGHT:
        return ''
    return ''.join(_ANY if part is None else re.escape(part.strip('\n'))
                   for part in said)


class CheckPageTest(base.BaseTestCase):

    def test_each_line_is_on_the_page(self) -> None:
        page = ' '.join(PAGE.read_text().replace('``', '').split())
        found = {pattern for path, functions in SOURCES.items()
                 for pattern in sentences(path, functions)}
        self.assertGreater(len(found), 25)
        self.assertEqual(set(), {
            pattern for pattern in found if not re.search(
                pattern.replace('\\ ', ' '), page)})

    def test_the_functions_are_there(self) -> None:
        for path, functions in SOURCES.items():
            for name in functions:
                self.assertTrue(list(sentences(path, {name})),
                                f'{path}: {name}')
