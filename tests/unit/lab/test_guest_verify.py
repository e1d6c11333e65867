# SPDX-License-Identifier: Apache-2.0
"""Whatever a disk lost is found, and nothing else."""
from __future__ import annotations

import collections
import contextlib
import ctypes
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib
from unittest import mock

from lab import blocks
from lab.blocks import Stamp
from lab.guest import console, verify
from tests.unit.lab import damage

DISK, OTHER, FILL = 0x1234abcd, 0xfeed, 0xf111
BLOCKS = 2048
LIMIT = 70000


def line(text: str) -> str:
    """A line as the guest writes it."""
    return f'@{text} *{zlib.crc32(text.encode()) & 0xffff:04x}\n'


def header_block(header: verify.Header) -> bytes:
    """The block that a guest writes as its header."""
    index = header.version % verify.HEADERS
    more = verify.HEADER_MORE.pack(header.limit, header.blocks, header.fill,
                                   header.boots)
    return damage.seal(Stamp(header.disk, index, sequence=header.version),
                       magic=b'DMCH', more=more)


class VerifyTest(unittest.TestCase):
    """A disk that a guest wrote 300 blocks to, of which 200 are flushed."""

    FILLED = 0

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = pathlib.Path(folder, 'disk')
        self.path.write_bytes(bytes(BLOCKS * blocks.BLOCK))
        if self.FILLED:
            blocks.fill(str(self.path), self.FILLED)
        self.position = verify.Positions(DISK, BLOCKS)
        self.put_header(LIMIT)
        for seq in range(1, 301):
            self.put(self.position(seq), seq)
        self.record = line(f'F {DISK:08x} 1 200')
        # A block that was written once and is flushed, and one that has an
        # older and a newer write.
        places = [self.position(seq) for seq in range(1, 301)]
        self.once = next(seq for seq in range(1, 201)
                         if places.count(self.position(seq)) == 1)
        self.twice = next(seq for seq in range(2, 201)
                          if self.position(seq) in places[:seq - 1]
                          and self.position(seq) not in places[seq:])

    def put_header(self, limit: int, version: int = 1) -> None:
        header = verify.Header(DISK, version, limit, BLOCKS, self.FILLED, 1)
        self.put_raw(version % 2, header_block(header))

    def put(self, index: int, seq: int, disk: int = DISK) -> None:
        self.put_raw(index, damage.seal(Stamp(disk, index, sequence=seq)))

    def put_raw(self, index: int, data: bytes) -> None:
        with self.path.open('r+b') as file:
            file.seek(index * blocks.BLOCK)
            file.write(data)

    def get_raw(self, index: int) -> bytes:
        with self.path.open('rb') as file:
            file.seek(index * blocks.BLOCK)
            return file.read(blocks.BLOCK)

    def check(self, *texts: str) -> verify.Report:
        return verify.check(
            str(self.path), verify.Record(*(texts or [self.record])))

    def assert_finding(self, words: str, *texts: str) -> None:
        report = self.check(*texts)
        self.assertIn(words, '\n'.join(report.findings))
        self.assertEqual(1, report.wrong)


class WellTest(VerifyTest):

    def test_all_is_well(self) -> None:
        report = self.check()
        self.assertEqual([], report.findings)
        self.assertEqual(200, report.checked['acknowledged'])
        blocks = {self.position(seq) for seq in range(1, 201)}
        self.assertEqual(len(blocks), report.checked['blocks'])
        self.assertLess(0, report.checked['later'])
        everything = {self.position(seq) for seq in range(1, 301)}
        self.assertEqual(len(everything), report.checked['written']
                         + report.checked['later'])
        self.assertEqual(BLOCKS - 2 - len(everything),
                         report.checked['blank'])

    def test_unflushed_writes_may_be_lost(self) -> None:
        for seq in range(201, 301):
            self.put_raw(self.position(seq), bytes(blocks.BLOCK))
        for seq in range(1, 201):
            self.put(self.position(seq), seq)
        self.assertEqual([], self.check().findings)

    def test_several_boots_and_consoles(self) -> None:
        self.put_header(3 * LIMIT, 2)
        for seq in range(LIMIT + 1, LIMIT + 50):
            self.put(self.position(seq), seq)
        report = self.check(
            line(f'F {DISK:08x} {LIMIT + 1} {LIMIT + 40}') + self.record,
            line(f'F {DISK:08x} {LIMIT + 1} {LIMIT + 30}'))
        self.assertEqual([], report.findings)
        self.assertEqual(240, report.checked['acknowledged'])

    def test_a_boot_disk(self) -> None:
        start, size = 64, 2048 - 64
        master = bytearray(1 << 20)
        master[440:444] = b'DMGD'
        struct.pack_into('<II', master, 454, start, size)
        self.path.write_bytes(bytes(master) + self.path.read_bytes())
        self.assertEqual([], self.check().findings)


class FilledTest(VerifyTest):

    FILLED = FILL

    def test_all_is_well(self) -> None:
        report = self.check()
        self.assertEqual([], report.findings)
        self.assertEqual(200, report.checked['acknowledged'])
        self.assertLess(1000, report.checked['filled'])
        self.assertEqual(0, report.checked['blank'])

    def test_a_lost_block_that_was_never_written(self) -> None:
        index = BLOCKS - 1
        while blocks.unseal(self.get_raw(index)) != Stamp(FILL, index):
            index -= 1
        self.put_raw(index, bytes(blocks.BLOCK))
        self.assert_finding(f'block {index}: lost: zeros')

    def test_an_acknowledged_write_that_never_came(self) -> None:
        self.put(self.position(self.once), 0, FILL)
        self.assert_finding('lost: never written, acknowledged is '
                            f'{self.once}')


class WrongTest(VerifyTest):

    def test_lost(self) -> None:
        self.put_raw(self.position(self.once), bytes(blocks.BLOCK))
        self.assert_finding(f'lost: zeros, acknowledged is {self.once}')

    def test_old(self) -> None:
        index = self.position(self.twice)
        older = next(seq for seq in range(1, self.twice)
                     if self.position(seq) == index)
        self.put(index, older)
        self.assert_finding(
            f'block {index}: old: {DISK:x}/{index}/0/{older}, acknowledged is '
            f'{self.twice}')

    def test_torn_between_sectors(self) -> None:
        index = self.position(self.once)
        self.put_raw(index, self.get_raw(index)[:1024] + bytes(3072))
        self.assert_finding('torn: sectors: '
                            f'2 {DISK:x}/{index}/0/{self.once}, 6 zeros')

    def test_torn_although_not_acknowledged(self) -> None:
        seq = next(seq for seq in range(201, 301) if self.position(seq)
                   not in map(self.position, range(1, 201)))
        index = self.position(seq)
        self.put_raw(index, bytes(2048) + self.get_raw(index)[2048:])
        self.assert_finding(f'block {index}: torn')

    def test_a_flipped_bit(self) -> None:
        index = self.position(self.once)
        block = bytearray(self.get_raw(index))
        block[3000] ^= 4
        self.put_raw(index, bytes(block))
        self.assert_finding(f'block {index}: torn: sectors: 8 {DISK:x}/')

    def test_foreign(self) -> None:
        self.put(self.position(self.once), self.once, OTHER)
        self.assert_finding('foreign: feed/')

    def test_from_another_place(self) -> None:
        index = self.position(self.once)
        self.put_raw(index, self.get_raw(self.position(self.twice)))
        self.assert_finding(f'block {index}: misplaced: {DISK:x}/')

    def test_a_write_that_belongs_elsewhere(self) -> None:
        index = self.position(self.once)
        later = next(seq for seq in range(self.once + 1, LIMIT)
                     if self.position(seq) != index)
        self.put(index, later)
        self.assert_finding(f'misplaced: {DISK:x}/{index}/0/{later} is of '
                            f'block {self.position(later)}')

    def test_a_number_that_was_never_used(self) -> None:
        index = self.position(self.once)
        seq = next(seq for seq in range(LIMIT + 1, LIMIT * 2)
                   if self.position(seq) == index)
        self.put(index, seq)
        self.assert_finding(f'future: {DISK:x}/{index}/0/{seq}')

    def test_no_header(self) -> None:
        self.put_raw(1, bytes(blocks.BLOCK))
        self.assert_finding('no header')

    def test_a_header_at_the_place_of_the_other(self) -> None:
        self.put_raw(0, self.get_raw(1))
        self.put_raw(1, bytes(blocks.BLOCK))
        self.assert_finding('no header')

    def test_a_torn_header(self) -> None:
        self.put_header(LIMIT, 2)
        self.put_raw(1, self.get_raw(1)[:512] + bytes(3584))
        self.assert_finding('header 1: torn')

    def test_an_old_header(self) -> None:
        report = self.check(line(f'F {DISK:08x} 1 {LIMIT + 1}'))
        self.assertIn('the header is old', report.findings[0])

    def test_a_header_that_was_lost_between_boots(self) -> None:
        report = self.check(self.record, line(f'F {DISK:08x} 101 150'))
        self.assertIn('from 101 were used twice', report.findings[0])

    def test_a_shorter_disk(self) -> None:
        os.truncate(self.path, (BLOCKS - 100) * blocks.BLOCK)
        self.assert_finding('2048 blocks became 1948')

    def test_a_record_of_another_disk(self) -> None:
        self.assert_finding('acknowledges no write of 1234abcd',
                            line(f'F {OTHER:08x} 1 200'))

    def test_what_the_guest_complained_about(self) -> None:
        for disk in DISK, 0:
            error = line(f'E {disk:08x} 1200 old 17 3 4')
            self.assert_finding('the guest says: 1200 old 17 3 4',
                                self.record + error + error)

    def test_complaints_about_another_disk(self) -> None:
        report = self.check(self.record,
                            line(f'E {OTHER:08x} 1200 old 17 3 4'))
        self.assertEqual([], report.findings)

    def test_many_findings_are_counted(self) -> None:
        self.path.write_bytes(self.path.read_bytes()[:2 * blocks.BLOCK]
                              + b'x' * (BLOCKS - 2) * blocks.BLOCK)
        report = self.check()
        self.assertEqual(BLOCKS - 2, report.wrong)
        self.assertEqual(50, len(report.findings))


class RecordTest(unittest.TestCase):

    def test_a_line_in_the_middle_of_others(self) -> None:
        record = verify.Record('[ 12.3] usb' + line('F 0a 1 7') + 'login:')
        self.assertEqual({10: {1: 7}}, record.flushed)
        self.assertEqual(0, record.garbled)

    def test_a_cut_line_does_not_count(self) -> None:
        whole = line('F 0a 1 1234')
        for end in range(len(whole) - 1):
            with self.subTest(end=end):
                self.assertEqual({}, verify.Record(whole[:end]).flushed)
        for begin in range(1, len(whole)):
            with self.subTest(begin=begin):
                self.assertEqual({}, verify.Record(whole[begin:]).flushed)

    def test_a_changed_line_does_not_count(self) -> None:
        record = verify.Record(line('F 0a 1 1234').replace('1234', '1334'))
        self.assertEqual({}, record.flushed)
        self.assertEqual(1, record.garbled)

    def test_a_kernel_message_within_a_line(self) -> None:
        text = line('F 0a 1 1234')
        record = verify.Record(
            text[:9] + '[    3.1] vda: error\n' + text[9:] + text)
        self.assertEqual({10: {1: 1234}}, record.flushed)
        self.assertEqual(1, record.garbled)

    def test_the_highest_counts(self) -> None:
        record = verify.Record(line('F 0a 1 9') + line('Q 0a 1 12 3'),
                               line('F 0a 1 5') + line('F 0a 100 120'))
        self.assertEqual({10: {1: 12, 100: 120}}, record.flushed)

    def test_what_a_console_can_be_asked(self) -> None:
        said = console.Console(
            line('M normal') + line('B 0a vda 4096 1000 00000000 1 1 3000')
            + line('S 0a 17 5000 200 50') + line('S 0a 900 9000 300 80')
            + line('S 0b 5000 9000 300 80') + line('F 0a 1 300')
            + line('M stop') + line('Q 0a 1 310 250'))
        disk = said.disk('vda')
        self.assertEqual(10, disk)
        self.assertEqual(900, said.slowest(disk))
        self.assertEqual(310, said.last(disk))
        self.assertEqual(0, said.last(99))
        self.assertEqual('stop', said.mode())
        self.assertEqual([['1', '310', '250']], said.of('Q', disk))


class CommandTest(VerifyTest):

    def run_main(self, *argv: str) -> tuple[object, str]:
        out = io.StringIO()
        with mock.patch('sys.argv', ['verify', *argv]), \
                contextlib.redirect_stdout(out), \
                self.assertRaises(SystemExit) as caught:
            verify.main()
        return caught.exception.code, out.getvalue()

    def test_check(self) -> None:
        record = self.path.with_name('console.log')
        record.write_text(self.record)
        code, out = self.run_main(str(self.path), str(record))
        self.assertFalse(code)
        self.assertEqual(200, json.loads(out)['checked']['acknowledged'])
        self.put(self.position(self.once), self.once, OTHER)
        code, out = self.run_main(str(self.path), str(record))
        self.assertTrue(code)
        self.assertIn('foreign', json.loads(out)['findings'][0])


@unittest.skipUnless(shutil.which('gcc'), 'needs gcc')
class FormatTest(unittest.TestCase):
    """The guest and the verifier agree about blocks."""

    guest: ctypes.CDLL

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        source = pathlib.Path(verify.__file__).with_name('format.c')
        library = f'{folder.name}/format.so'
        subprocess.run(['gcc', '-shared', '-fPIC', '-o', library, source],
                       check=True)
        cls.guest = ctypes.CDLL(library)
        cls.guest.judge.restype = ctypes.c_char_p
        cls.guest.judge.argtypes = (
            ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64)
        cls.guest.position.restype = ctypes.c_uint64
        cls.guest.position.argtypes = (
            ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)

    def test_positions(self) -> None:
        for disk, count in (DISK, BLOCKS), (0xffffffff, 258048), (1, 1024):
            position = verify.Positions(disk, count)
            found = [position(seq) for seq in range(1, 3000)]
            self.assertEqual(
                [self.guest.position(disk, count, seq)
                 for seq in range(1, 3000)], found)
            self.assertTrue(all(2 <= index < count for index in found))

    def test_some_blocks_are_written_often_and_some_once(self) -> None:
        position = verify.Positions(DISK, 258048)
        found = [position(seq) for seq in range(1, 20001)]
        often = [index for index, times
                 in collections.Counter(found).items() if times > 3]
        self.assertTrue(500 < len(often) <= 1024, len(often))
        self.assertLess(9000, len(set(found)))

    def test_blocks(self) -> None:
        stamp = Stamp(DISK, 77, 0, 5)
        for good in damage.seal(stamp), blocks.seal(stamp):
            # It fills what is there already.
            block = ctypes.create_string_buffer(good, blocks.BLOCK)
            for at in range(0, blocks.BLOCK, blocks.SECTOR):
                ctypes.memset(ctypes.byref(block, at), 0, 32)
            begin = struct.pack('<4sIQQQ', b'DMCB', *stamp)
            self.guest.seal(block, begin, len(begin))
            self.assertEqual(good, block.raw)
            self.assertEqual(stamp, blocks.unseal(block.raw))
        self.assertTrue(self.guest.intact(block, b'DMCB'))
        self.assertFalse(self.guest.intact(block, b'DMCH'))
        self.assertTrue(self.guest.zeros(bytes(blocks.BLOCK)))
        self.assertFalse(self.guest.zeros(bytes(blocks.BLOCK - 1) + b'1'))
        block[4000] = bytes([block.raw[4000] ^ 1])
        self.assertFalse(self.guest.intact(block, b'DMGB'))

    def test_what_is_wrong(self) -> None:
        least = struct.pack('<4sIQQQ', b'DMCB', *damage.LEAST)
        for what, kind, block in damage.every():
            with self.subTest(what):
                self.assertEqual(kind.encode(), self.guest.judge(
                    block, least, damage.LATEST))
        for sequence in range(damage.LEAST.sequence, damage.LATEST + 1):
            good = damage.seal(damage.LEAST._replace(sequence=sequence))
            self.assertIsNone(self.guest.judge(good, least, damage.LATEST))
