# SPDX-License-Identifier: Apache-2.0
"""What ``check`` and cinder-volume's log say has its cure on a page."""

from __future__ import annotations

import ast
import pathlib
import re
import typing

from oslotest import base

from tests.unit import test_packaging

ROOT = test_packaging.ROOT
CHECK_PAGE = ROOT / 'doc/source/admin/check.rst'
LOG_PAGE = ROOT / 'doc/source/admin/log.rst'
# Where its lines come from: all functions of a file, or some.
SOURCES: dict[str, set[str]] = {
    'preflight.py': set(),
    'cli/check.py': {'_options', '_rootwrap', '_restorers'},
    'host/lvm_filter.py': {'advice'},
    'host/thin_pool.py': {'advice'},
    'host/iscsi/targets.py': {'check'},
    'host/iscsi/initiator.py': {'check'},
    'privileged/configfs.py': set(),
    'privileged/iscsi.py': {'initiator_name'},
    'privileged/lio.py': {'_rtslib', '_exclusive'},
}
# The texts that an LV is reported or waits with.
LOGGED: dict[str, set[str]] = {
    'reconcile/hindrances.py': {'failed', 'look'},
    'reconcile/loans.py': {'_doubt', '_kept'},
    'reconcile/offers.py': {'hindrance'},
}
# nova-scheduler's log has a page of its own.
NOT_OURS = 'cinder_dmclone/nova'
# What a sentence is at least; others are names and parts of one.
_WORDS = 3
# Nothing that is said: it is looked for in what a command says.
_SOUGHT = ' failed with status '
# What one of the code's values may be on the page.
_ANY = '.{0,130}?'


def sentences(path: str, functions: set[str]) -> typing.Iterator[str]:
    """Each text that a function has, as a pattern; docstrings left out."""
    for node in ast.walk(ast.parse(
            (ROOT / 'cinder_dmclone' / path).read_text())):
        if isinstance(node, ast.FunctionDef) and (
                not functions or node.name in functions):
            for statement in node.body[bool(ast.get_docstring(node)):]:
                yield from filter(None, map(_pattern, _texts(statement)))


def logged() -> typing.Iterator[str]:
    """Each text that the log may have, as a pattern."""
    for path, functions in LOGGED.items():
        yield from sentences(path, functions)
    for file in sorted((ROOT / 'cinder_dmclone').rglob('*.py')):
        if NOT_OURS not in str(file):
            for node in ast.walk(ast.parse(file.read_text())):
                for said in _said(node):
                    yield from filter(None, map(_pattern, _texts(said)))


def _said(node: ast.AST) -> typing.Iterator[ast.AST]:
    """What a call logs, or decides to; the message of an exception."""
    if isinstance(node, ast.ClassDef):
        yield from (part.value for part in node.body
                    if isinstance(part, ast.Assign)
                    and ast.unparse(part.targets[0]) == 'message')
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called in ('LOG.warning', 'LOG.error', 'LOG.exception'):
            yield node.args[0]
        elif called == 'Decision' and (
                ast.unparse(node.args[0]) == 'Verdict.REPORT'):
            yield from node.args[1:]
        yield from (word.value for word in node.keywords
                    if word.arg == 'hindrance')


def _texts(node: ast.AST) -> typing.Iterator[ast.AST]:
    if isinstance(node, (ast.JoinedStr, ast.Constant)):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _pattern(node: ast.AST) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    said = [str(part.value) if isinstance(part, ast.Constant) else None
            for part in parts]
    fixed = ' '.join(part for part in said if part)
    if len(fixed.split()) < _WORDS or fixed == _SOUGHT:
        return ''
    whole = ''.join(_ANY if part is None else re.escape(part.strip('\n'))
                    for part in said)
    # Logging puts its values in by itself.
    return re.sub(r'%(\\\(\w+\\\))?[rs]', lambda _: _ANY, whole)


def missing(page: pathlib.Path, patterns: set[str]) -> set[str]:
    """What a page does not have."""
    text = ' '.join(page.read_text().replace('``', '').split())
    return {pattern for pattern in patterns
            if not re.search(pattern.replace('\\ ', ' '), text)}


class CheckPageTest(base.BaseTestCase):

    def test_each_line_is_on_the_page(self) -> None:
        found = {pattern for path, functions in SOURCES.items()
                 for pattern in sentences(path, functions)}
        self.assertGreater(len(found), 25)
        self.assertEqual(set(), missing(CHECK_PAGE, found))

    def test_the_functions_are_there(self) -> None:
        for path, functions in (*SOURCES.items(), *LOGGED.items()):
            for name in functions:
                self.assertTrue(list(sentences(path, {name})),
                                f'{path}: {name}')


class LogPageTest(base.BaseTestCase):

    def test_each_line_is_on_the_page(self) -> None:
        found = set(logged())
        self.assertGreater(len(found), 40)
        self.assertEqual(set(), missing(LOG_PAGE, found))
