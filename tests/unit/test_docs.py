# SPDX-License-Identifier: Apache-2.0
"""What the tree says of its own documents is so."""

from __future__ import annotations

import ast
import pathlib
import re
import typing

from oslotest import base

from tests.unit import test_layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ROOT / 'doc/source'
# A page or picture, as files outside doc/source name it.
_PAGE = re.compile(r'\bdoc/source/[\w./-]+\.\w+')
# A file or a module of the tree, as a page names it.
_INSIDE = re.compile(r'``((?:cinder_dmclone|etc|lab|tests|tools)/[\w./-]*)``')
_TEST = re.compile(r'^ +def (test_\w+)', re.MULTILINE)
# A test, a module of tests, or both, as a page names them.
_NAMED = re.compile(r'``(test_\w+(?:\.test_\w+)?)``')
# Pages that take a reader through the code, and what they name: a file, a
# folder, or something in the code.
_GUIDES = ('code', 'design', 'power', 'recipes', 'simulation', 'states',
           'words')
_FILE = re.compile(r'``([\w./-]+(?:\.py|/))``')
_CODE = re.compile(r'``(?!test_|\w+\.py`)(?:\w+\.)*([A-Za-z_]\w+)``')
# Those about tests as well; the others are about the product alone.
_OF_TESTS = ('power', 'simulation')
# An option, or a check of the simulation.
_CALLED = re.compile(r"(?:Opt|Violation)\(\s*f?'(\w+)")
# What others have named: Cinder (states, options, sections), ext4, QEMU...
_OTHERS = {
    'attaching', 'deleting', 'migrating', 'success', 'uploading',
    'target_ip_address', 'volume_clear', 'volume_group',
    'COMMIT', 'RWF_DSYNC', 'blklogwrites', 'lvchange', 'metadata_csum',
    'dmclone', 'python', 'repr', 'unsafe', 'wsrep_sync_wait'}
# A schedule that broke the first draft of the protocol. H101 and the like are
# checks of OpenStack's style.
_HOLE = re.compile(r'\bH(\d{1,2})\b')


def texts() -> typing.Iterator[tuple[pathlib.Path, str]]:
    """Every file that a person reads, with what it says."""
    for pattern in ('*.md', '*.rst', '*.toml', '*.cfg', '*.ini'):
        for path in ROOT.glob(pattern):
            yield path, path.read_text()
    for folder in ('cinder_dmclone', 'doc/source', 'etc', 'lab',
                   'releasenotes/notes', 'tests', 'tools'):
        for path in sorted((ROOT / folder).rglob('*')):
            if (path.is_file() and path.suffix != '.png'
                    and '__pycache__' not in path.parts):
                yield path, path.read_text(errors='replace')


def named(text: str) -> typing.Iterator[str]:
    """What a module gives a name that others can use.

    A variable of a function is none: any word is one somewhere.
    """
    yield from _CALLED.findall(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        if isinstance(node, ast.FunctionDef):
            yield from (word.arg for word in node.args.kwonlyargs)
        elif (isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)):
            yield node.attr
        elif isinstance(node, (ast.ClassDef, ast.Module)):
            yield from _assigned(node)


def _assigned(within: ast.ClassDef | ast.Module) -> typing.Iterator[str]:
    """Names, and the texts they stand for: a tag, a state."""
    for line in within.body:
        if isinstance(line, ast.Assign):
            targets = line.targets
        elif isinstance(line, ast.AnnAssign):
            targets = [line.target]
        else:
            continue
        yield from (part.id for target in targets for part in ast.walk(target)
                    if isinstance(part, ast.Name))
        if (isinstance(line.value, ast.Constant)
                and isinstance(line.value.value, str)):
            yield line.value.value


class DocumentsTest(base.BaseTestCase):

    def test_pages_that_are_named_exist(self) -> None:
        """A link of the README, or a page a test follows, was moved away."""
        missing = {f'{path.relative_to(ROOT)}: {page}'
                   for path, text in texts() for page in _PAGE.findall(text)
                   if not (ROOT / page).exists()}
        self.assertEqual(set(), missing)

    def test_files_that_pages_name_exist(self) -> None:
        missing = {f'{path.relative_to(ROOT)}: {name}'
                   for path in DOCUMENTS.rglob('*.rst')
                   for name in _INSIDE.findall(path.read_text())
                   if not (ROOT / name).exists()
                   and not (ROOT / f'{name}.py').exists()}
        self.assertEqual(set(), missing)

    def test_tests_that_are_named_exist(self) -> None:
        """A proof that a page relies on was renamed, or is gone."""
        modules, tests = set(), set()
        for path in (ROOT / 'tests').rglob('test_*.py'):
            modules.add(path.stem)
            for name in _TEST.findall(path.read_text()):
                tests |= {name, f'{path.stem}.{name}'}
        missing = {f'{path.relative_to(ROOT)}: {name}'
                   for path in DOCUMENTS.rglob('*.rst')
                   for name in _NAMED.findall(path.read_text())
                   if name not in modules | tests}
        self.assertEqual(set(), missing)

    def test_holes_that_are_named_are_listed(self) -> None:
        """A number that nobody can look up tells a reader nothing."""
        page = (DOCUMENTS / 'contributor/holes.rst').read_text()
        listed = re.findall(r'^H(\d+):', page, re.MULTILINE)
        self.assertEqual([str(number) for number in range(1, 31)], listed)
        for hole in page.split('\nH')[1:]:
            self.assertRegex(hole, _NAMED, 'no test')
        unknown = {f'{path.relative_to(ROOT)}: H{number}'
                   for path, text in texts()
                   for number in _HOLE.findall(text)
                   if number not in listed}
        self.assertEqual(set(), unknown)

    def test_code_that_is_named_exists(self) -> None:
        """Something was renamed, and a guide leads nowhere."""
        files = {f'/{path.relative_to(ROOT)}': path.read_text()
                 for folder in ('cinder_dmclone', 'lab', 'tests')
                 for path in (ROOT / folder).rglob('*.py')}
        product, tests = set(_OTHERS), set[str]()
        for path, text in files.items():
            names = product if path.startswith('/cinder_dmclone/') else tests
            names.update(re.findall(r'\w+', path), named(text))
        missing = set()
        for guide in _GUIDES:
            text = (DOCUMENTS / f'contributor/{guide}.rst').read_text()
            known = product | (tests if guide in _OF_TESTS else set())
            missing |= {f'{guide}: {name}' for name in _CODE.findall(text)
                        if name not in known}
            missing |= {f'{guide}: {name}' for name in _FILE.findall(text)
                        if not any(f'/{name}' in path if name[-1] == '/'
                                   else path.endswith(f'/{name}')
                                   for path in files)}
        self.assertEqual(set(), missing)

    def test_every_room_is_in_the_picture(self) -> None:
        """The picture is looked at before the map is read."""
        picture = (DOCUMENTS / 'images/floors.svg').read_text()
        drawn = re.findall(r'\w+', ' '.join(
            re.findall(r'class="n"[^>]*>([^<]*)', picture)))
        self.assertEqual(sorted(test_layers.floors()), sorted(drawn))
