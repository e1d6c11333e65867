# SPDX-License-Identifier: Apache-2.0
"""Whatever a file system lost is found; what the guest writes is right."""
from __future__ import annotations

import collections
import contextlib
import ctypes
import io
import json
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import unittest
from collections.abc import Iterator
from unittest import mock

from lab import blocks
from lab.blocks import BLOCK, Stamp
from lab.guest import files, verify
from tests.unit.lab import damage
from tests.unit.lab.test_guest_verify import line

DISK, OTHER = 0x1234abcd, 0xfeed
FIRST = 1 << 32
# More transactions than leave rows behind.
FILES, TRANSACTIONS = 600, 300
# The guest's own code, with what it needs of the rest of the guest. Files are
# in memory, where there is nothing to flush and no O_DIRECT.
_FOLDER = '/dev/shm'
_HARNESS = '''
#define _GNU_SOURCE
#include <fcntl.h>
#undef O_DIRECT
#define O_DIRECT 0
#include "files.c"
#include <stdarg.h>

volatile enum mode *mode;
static enum mode now_in;
static unsigned int left;
static FILE *said;

void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(said, format, args);
    va_end(args);
    fputc('\\n', said);
}

uint64_t now(void) { return 0; }
int present(const char *name) { return 1; }
void load_modules(const char *folder) { }

void pause_ms(unsigned int ms)
{
    if (!--left)
        now_in = STOP;
}

static void begin_at(const char *folder, uint32_t owner, unsigned int times,
                     const char *record)
{
    mode = &now_in;
    now_in = HEAVY;
    left = times;
    id = owner;
    said = fopen(record, "a");
    buffer = aligned_alloc(BLOCK, MOST * BLOCK);
    root = open(folder, O_RDONLY | O_DIRECTORY);
}

int make_files(const char *folder, uint32_t owner, unsigned int times,
               const char *record)
{
    uint64_t boots;
    char name[4];
    int result;

    begin_at(folder, owner, times, record);
    for (int i = 0; i < FOLDERS; i++) {
        sprintf(name, "%02d", i);
        mkdirat(root, name, 0755);
    }
    memset(last, 0, sizeof(last));
    if (count_boots(&boots))
        return -1;
    first = next = boots << BOOT_SHIFT;
    result = work_on() || read_all();
    fclose(said);
    return result;
}

int make_rows(const char *folder, uint32_t owner, unsigned int times,
              const char *record, uint64_t from)
{
    char path[256];
    int result;

    begin_at(folder, owner, times, record);
    sprintf(path, "%s/rows", folder);
    result = keep_rows(path, owner, from);
    fclose(said);
    return result;
}
'''


def begun(first: int = FIRST, disk: int = DISK) -> str:
    """What is said when a file system is mounted."""
    return line(f'B {disk:08x} vdb 0 1024 00000000 {first >> 32} {first} 9')


def write(folder: pathlib.Path, seq: int, disk: int = DISK,
          number: int | None = None) -> pathlib.Path:
    """A file as the guest writes it, in its own slot or in another one."""
    if number is None:
        number = files.slot(disk, seq)
    path = folder / files.path(number)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b''.join(
        damage.seal(Stamp(disk, number * files.MOST + index, 0, seq))
        for index in range(files.size(disk, seq) // BLOCK)))
    return path


class GuestTest(unittest.TestCase):
    """A folder in which the guest's own code has worked."""

    library: ctypes.CDLL
    template: pathlib.Path
    said: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        if not shutil.which('gcc') or not pathlib.Path(
                '/usr/include/sqlite3.h').exists():
            raise unittest.SkipTest('needs gcc and libsqlite3-dev')
        folder = tempfile.TemporaryDirectory(dir=_FOLDER)
        cls.addClassCleanup(folder.cleanup)
        source = pathlib.Path(folder.name, 'harness.c')
        source.write_text(_HARNESS)
        here = pathlib.Path(files.__file__).parent
        target = f'{folder.name}/guest.so'
        subprocess.run(
            ['gcc', '-O1', '-shared', '-fPIC', '-I', here, '-o', target,
             source, *(here / name for name in (
                 'rows.c', 'format.c', 'batch.c')), '-lsqlite3'], check=True)
        cls.library = ctypes.CDLL(target)
        cls.template = pathlib.Path(folder.name, 'template')
        cls.template.mkdir()
        cls.said = pathlib.Path(folder.name, 'said')
        cls.make(cls.template, cls.said, FIRST)

    @classmethod
    def make(cls, folder: pathlib.Path, said: pathlib.Path,
             first: int) -> None:
        """One boot's work."""
        arguments = bytes(folder), DISK
        if cls.library.make_files(*arguments, FILES, bytes(said)):
            raise AssertionError(said.read_text())
        if cls.library.make_rows(*arguments, TRANSACTIONS, bytes(said),
                                 ctypes.c_uint64(first)):
            raise AssertionError(said.read_text())

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=_FOLDER)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, 'files')
        shutil.copytree(self.template, self.folder)
        text = self.said.read_text()
        self.assertNotIn('\nE ', text)
        self.text = begun() + ''.join(map(line, text.splitlines()))
        # The slot of this file was written twice.
        slots = [files.slot(DISK, FIRST + number) for number in range(FILES)]
        self.twice = next(
            FIRST + number for number in range(FILES)
            if slots[number] in slots[:number]
            and slots[number] not in slots[number + 1:])
        self.before = max(
            FIRST + number for number in range(self.twice - FIRST)
            if slots[number] == files.slot(DISK, self.twice))
        self.file = self.folder / files.path(files.slot(DISK, self.twice))

    def check(self, text: str | None = None) -> verify.Report:
        return files.check(self.folder, DISK,
                           verify.Record(self.text if text is None else text))

    def assert_finding(self, words: str, text: str | None = None) -> None:
        report = self.check(text)
        self.assertIn(words, '\n'.join(report.findings))

    @contextlib.contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(
                self.folder / files.DATABASE)) as database, database:
            yield database


class WellTest(GuestTest):

    def test_all_is_well(self) -> None:
        report = self.check()
        self.assertEqual([], report.findings)
        slots = {files.slot(DISK, FIRST + number) for number in range(FILES)}
        self.assertEqual({
            'acknowledged': FILES, 'files': len(slots),
            'transactions': TRANSACTIONS,
            'rows': files.KEPT * files.ROWS}, report.checked)
        sizes = collections.Counter(
            files.size(DISK, number) // BLOCK for number in range(FILES))
        self.assertEqual(range(1, files.MOST + 1), range(
            min(sizes), max(sizes) + 1))

    def test_one_that_was_under_way(self) -> None:
        """It is there, or the one before; so with a transaction."""
        lines = self.text.splitlines(True)
        for kind in 'FT':
            lines.remove([one for one in lines if one[1] == kind][-1])
        self.assertEqual([], self.check(''.join(lines)).findings)

    def test_a_second_boot(self) -> None:
        said = self.folder.with_name('said')
        said.touch()
        self.make(self.folder, said, 2 * FIRST)
        more = ''.join(map(line, said.read_text().splitlines()))
        text = self.text + begun(2 * FIRST) + more
        report = self.check(text)
        self.assertEqual([], report.findings)
        self.assertEqual(2 * TRANSACTIONS, report.checked['transactions'])
        # What was never said is known, too.
        report = self.check(self.text)
        self.assertIn('future', '\n'.join(report.findings))


class WrongTest(GuestTest):
    """In a file, then in the database."""

    def test_lost(self) -> None:
        self.file.unlink()
        self.assert_finding(f'lost, acknowledged is {self.twice}')

    def test_old(self) -> None:
        write(self.folder, self.before)
        self.assert_finding(f'block 0: old: {DISK:x}/')

    def test_of_another_file_system(self) -> None:
        write(self.folder, self.twice, OTHER, files.slot(DISK, self.twice))
        self.assert_finding('block 0: ')

    def test_in_another_slot(self) -> None:
        used = {files.slot(DISK, FIRST + number) for number in range(FILES)}
        number = next(number for number in range(files.SLOTS)
                      if number not in used)
        write(self.folder, self.twice, number=number)
        self.assert_finding(f'misplaced: {self.twice} is of slot ')

    def test_never_begun(self) -> None:
        number = files.slot(DISK, self.twice)
        later = next(seq for seq in range(FIRST + FILES + 1, 2 * FIRST)
                     if files.slot(DISK, seq) == number)
        write(self.folder, later)
        self.assert_finding('future: ')

    def test_a_block_of_zeros(self) -> None:
        with self.file.open('r+b') as file:
            file.write(bytes(BLOCK))
        self.assert_finding('block 0: lost: zeros')

    def test_torn(self) -> None:
        with self.file.open('r+b') as file:
            file.seek(blocks.SECTOR)
            file.write(bytes(blocks.SECTOR))
        self.assert_finding('block 0: torn: sectors: 1 ')

    def test_too_short_and_too_long(self) -> None:
        data = self.file.read_bytes()
        more = damage.seal(Stamp(
            DISK, files.slot(DISK, self.twice) * files.MOST
            + len(data) // BLOCK, 0, self.twice))
        for wrong in data[:-BLOCK], data + more, b'', data[:-1]:
            self.file.write_bytes(wrong)
            with self.subTest(len(wrong)):
                self.assertEqual(1, self.check().wrong)

    def test_a_file_that_nobody_has_written(self) -> None:
        (self.folder / '00/9999').touch()
        self.assert_finding('file 00/9999: nobody has written it')

    def test_what_the_guest_complained_about(self) -> None:
        error = line(f'E {DISK:08x} 7 read 3 5')
        self.assert_finding('the guest says: 7 read 3 5', self.text + error)

    def test_nothing_was_acknowledged(self) -> None:
        for kind, what in ('F', 'files'), ('T', 'transactions'):
            text = ''.join(one for one in self.text.splitlines(True)
                           if one[1] != kind)
            self.assert_finding(f'the record acknowledges no {what}', text)

    def test_transactions_that_are_gone(self) -> None:
        """As if the file was that of some time ago."""
        last = FIRST + TRANSACTIONS - 1
        with self.database() as database:
            database.execute('update progress set last = last - 1')
        self.assert_finding(f'{last - 1} is the last, committed is {last}')

    def test_half_a_transaction(self) -> None:
        with self.database() as database:
            database.execute('update accounts set balance = balance + 1 '
                             'where name = 3')
        self.assert_finding('account 3: ')

    def test_rows(self) -> None:
        last = (FIRST + TRANSACTIONS) * files.ROWS - 1
        with self.database() as database:
            database.execute('delete from rows where number = ?', [last])
            database.execute('update rows set body = zeroblob(4096) '
                             'where number = ?', [last - 1])
            database.execute('insert into rows values(1, zeroblob(1))')
        report = self.check()
        self.assertEqual([
            'database: row 1 has no business there',
            f'database: row {last - 1}: lost: zeros',
            f'database: 1 rows are lost, {last} first'], report.findings)

    def test_no_database(self) -> None:
        (self.folder / files.DATABASE).unlink()
        self.assert_finding('database: no such table')

    def test_a_page_of_zeros(self) -> None:
        with (self.folder / files.DATABASE).open('r+b') as file:
            file.seek(3 * BLOCK)
            file.write(bytes(BLOCK))
        self.assert_finding('database: ')

    def test_a_transaction_that_was_under_way_is_taken_back(self) -> None:
        """What it had changed already is not missed."""
        copy = self.folder.with_name('copy')
        with self.database() as database:
            database.execute('pragma cache_size = 1')
            database.execute('begin')
            database.execute('update rows set body = zeroblob(4096)')
            shutil.copytree(self.folder, copy)
            database.execute('rollback')
        self.folder = copy
        self.assertTrue((copy / 'rows-journal').exists())
        self.assertEqual([], self.check().findings)
        (copy / 'rows-journal').unlink()
        self.assertNotEqual([], self.check().findings)


class IdentifyTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=_FOLDER)
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, 'disk')

    @unittest.skipUnless(shutil.which('mkfs.ext4'), 'needs e2fsprogs')
    def test_ext4(self) -> None:
        with self.path.open('wb') as file:
            file.truncate(8 << 20)
        subprocess.run(['mkfs.ext4', '-qF', '-U',
                        '1234abcd-0000-4000-8000-000000000001', self.path],
                       check=True)
        self.assertEqual(DISK, files.identify(str(self.path)))

    def test_xfs(self) -> None:
        begin = bytearray(BLOCK)
        begin[:4] = b'XFSB'
        begin[32:36] = DISK.to_bytes(4, 'big')
        self.path.write_bytes(begin)
        self.assertEqual(DISK, files.identify(str(self.path)))

    def test_none(self) -> None:
        self.path.write_bytes(bytes(BLOCK))
        self.assertRaises(ValueError, files.identify, str(self.path))


class CommandTest(GuestTest):

    def test_check(self) -> None:
        device = self.folder.with_name('disk')
        device.write_bytes(b'XFSB'.ljust(32) + DISK.to_bytes(4, 'big')
                           + bytes(BLOCK))
        record = self.folder.with_name('record')
        record.write_text(self.text)
        for status in False, True:
            out = io.StringIO()
            with mock.patch('sys.argv', [
                    'files', str(device), str(self.folder), str(record)]), \
                    contextlib.redirect_stdout(out), \
                    self.assertRaises(SystemExit) as caught:
                files.main()
            self.assertEqual(status, caught.exception.code)
            self.assertEqual(status, json.loads(out.getvalue())['wrong'] > 0)
            self.file.unlink(missing_ok=True)
