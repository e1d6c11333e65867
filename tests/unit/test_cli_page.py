# SPDX-License-Identifier: Apache-2.0
"""The page of the command says what the command takes and prints."""

from __future__ import annotations

import argparse
import ast
import re
import typing
import uuid

from cinder_dmclone import cli
from cinder_dmclone.cli import install_files
from cinder_dmclone.cli import moves
from cinder_dmclone.cli import show
from cinder_dmclone.cli import status
from cinder_dmclone.files import install
from cinder_dmclone import names
from cinder_dmclone.stack import roles
from tests.unit import base
from tests.unit import test_packaging

ROOT = test_packaging.ROOT
PAGE = (ROOT / 'doc/source/cli/cinder-dmclone.rst').read_text()
_UUID = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Each command by its full name, and the command itself."""
    whole = cli._parser()
    commands, = (action for action in whole._actions
                 if isinstance(action, argparse._SubParsersAction))
    return {whole.prog: whole} | {
        f'{whole.prog} {name}': found
        for name, found in commands.choices.items()}


def sections() -> dict[str, str]:
    """What the page has on each, by the name that it gives it."""
    parts = re.split(r'(?m)^\.\. program:: (.*)\n', PAGE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options(parser: argparse.ArgumentParser) -> set[str]:
    """As an ``option`` directive has them: names, and what follows."""
    found = set()
    for action in parser._actions:
        if action.option_strings:
            words = [', '.join(action.option_strings)]
            if action.nargs != 0:
                words.append(str(action.metavar))
            found.add(' '.join(words))
    return found


def synopsis(section: str) -> str:
    """Its first block of text, in one line."""
    block, = re.findall(r'\A\n\.\. code-block:: text\n\n((?:   .*\n)+)',
                        section)
    return ' '.join(block.split())


class PageTest(base.TestCase):

    def test_every_command_is_there(self) -> None:
        self.assertEqual(set(parsers()), set(sections()))
        for name in parsers():
            self.assertRegex(PAGE, rf'(?m)^{name.split()[-1]}\n==')

    def test_synopses(self) -> None:
        for name, section in sections().items():
            usage = parsers()[name].format_usage().removeprefix('usage: ')
            # The command has the name that it was called by.
            words = ' '.join(usage.split())
            self.assertEqual(words[words.index('['):],
                             synopsis(section).removeprefix(f'{name} '))

    def test_options(self) -> None:
        """Those of all commands are told once."""
        found = {name: set(re.findall(r'(?m)^\.\. option:: (.*)', section))
                 for name, section in sections().items()}
        common = options(parsers()['cinder-dmclone'])
        self.assertEqual(common, found.pop('cinder-dmclone'))
        for name, told in found.items():
            self.assertEqual(options(parsers()[name]) - common, told, name)

    def test_words_of_install_files(self) -> None:
        said = {*install_files._DONE.values(),
                *(state.value for state in install.State)}
        section = sections()['cinder-dmclone install-files']
        self.assertEqual(set(), {
            word for word in said if f'``{word}``' not in section})

    def test_words(self) -> None:
        """Each kind of LV, each thing that a line may say, each field."""
        for module, command, constants in (
                ('status', 'status', (*status._BAD.values(), *(
                    role.value for role in roles.Role))),
                ('moves', 'list', moves._OFFERED.values())):
            words = self.words(module) | set(constants)
            self.assertGreater(len(words), 10)
            section = ' '.join((
                sections()[f'cinder-dmclone {command}']
                + PAGE.partition('.. _json:')[2]).split())
            self.assertEqual(set(), {
                word for word in words if word not in section}, command)
        for kind in names.CONSUMERS:
            self.assertRegex(PAGE, rf'``{kind.value}\b')

    def words(self, module: str) -> set[str]:
        """The texts in the functions of a module."""
        path = ROOT / f'cinder_dmclone/cli/{module}.py'
        return {part.value.strip(' %(,:[]')
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.FunctionDef)
                for line in node.body[bool(ast.get_docstring(node)):]
                for part in ast.walk(line)
                if isinstance(part, ast.Constant)
                and isinstance(part.value, str)} - {'', ')', '='}


class ExampleTest(base.CloudTestCase):

    hosts = ('node1', 'node2')

    def lines(self, *nodes: typing.Any, command: str = 'status') -> list[str]:
        """What the command prints on each of the nodes."""
        return [line for node in nodes
                for line in show._READ[command](node.process.world)[0]]

    def test_lines(self) -> None:
        examples = [line.strip() for line in PAGE.splitlines()
                    if _UUID.match(line.strip())]
        at_rest = self.cloud.create(self.a)
        _, front = self.cloud.attach(at_rest, self.a)
        self.a.mapper.open(front)
        attachment = self.cloud.reserve(self.volume)
        path = self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.complete(self.volume, attachment)
        self.b.mapper.open(path)
        self.cloud.settle(1)
        found = sorted(self.lines(self.a)) + self.lines(self.b)
        copy = str(uuid.uuid4())
        snapshot = self.cloud.db.snapshot(
            at_rest, provider_id=f'1;at={self.cloud.row(at_rest).owner}'
            f';offer=node2@dmclone/{copy}')
        found += self.lines(self.a, command='list')
        self.a.lose_power()
        found += self.lines(self.b)
        known = {self.volume: 'VOLUME', at_rest: 'OTHER',
                 self.cloud.row(self.volume).lv: 'COPY',
                 snapshot: 'SNAPSHOT', copy: 'ANOTHER COPY'}
        on_page = dict(zip(dict.fromkeys(_UUID.findall('\n'.join(
            examples))), ('VOLUME', 'SNAPSHOT', 'OTHER', 'ANOTHER COPY',
                          'COPY'), strict=True))
        self.assertEqual(
            sorted(_UUID.sub(lambda match: on_page[match[0]], line)
                   for line in examples),
            sorted(_UUID.sub(lambda match: known[match[0]], line)
                   for line in found))
