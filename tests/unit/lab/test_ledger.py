# SPDX-License-Identifier: Apache-2.0
"""Whatever a volume lost is found, and nothing else."""
from __future__ import annotations

import os
import pathlib
import tempfile
import unittest
from unittest import mock

from lab import blocks
from lab import ledger

SIZE = 64 << 20
OWNER = 7


class LedgerTest(unittest.TestCase):
    """Some writes of the first run, of which up to ``flushed`` are."""

    def setUp(self) -> None:
        # Enough to tell areas apart.
        self.enterContext(mock.patch.multiple(ledger, AREA=1 << 20, PAUSE=0))
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = pathlib.Path(folder, 'device')
        with self.path.open('wb') as file:
            file.truncate(SIZE)
        self.program = ledger.Program(str(self.path), OWNER, SIZE)
        self.addCleanup(os.close, self.program._device._handle)
        self.program.fill()
        self.ledger = ledger.Ledger(OWNER, SIZE)
        self.ledger.epoch = 2
        self.said = mock.Mock()
        self.enterContext(mock.patch.object(ledger, '_say', self.said))

    def pen(self, epoch: int = 1) -> ledger.Pen:
        return ledger.Pen(epoch, 0, len(self.copy()) // blocks.SECTOR)

    def write(self, turn: int, epoch: int = 1) -> ledger.Write:
        """Let the first pen make a write; returns it."""
        write = self.pen(epoch)[turn]
        self.program._put(epoch, turn, write)
        return write

    def copy(self) -> bytes:
        target = self.path.with_name('copy')
        self.program.copy(str(target))
        return target.read_bytes()

    def seal(self, sector: int, epoch: int, turn: int,
             owner: int = OWNER) -> bytes:
        where = self.program._piece(sector).start
        return blocks.seal(blocks.Stamp(owner, where, epoch, turn),
                           blocks.SECTOR)

    def put(self, sector: int, data: bytes) -> None:
        at = self.program._piece(sector).start * blocks.SECTOR
        with self.path.open('r+b') as file:
            file.seek(at)
            file.write(data)

    def stamp(self, sector: int) -> blocks.Stamp:
        """What it was filled with."""
        return blocks.Stamp(OWNER, self.program._piece(sector).start)

    def get(self, sector: int) -> bytes:
        return self.copy()[sector * blocks.SECTOR:][:blocks.SECTOR]

    def findings(self, settled: bool = False) -> str:
        return '\n'.join(self.ledger.compare(self.copy(), settled))

    def test_a_fresh_volume(self) -> None:
        self.assertEqual('', self.findings())

    def test_what_was_not_flushed_may_be_there_or_not(self) -> None:
        write = self.write(1)
        self.assertEqual('', self.findings())
        self.put(write.first, self.seal(write.first, 0, 0))
        self.assertEqual('', self.findings())

    def test_what_was_flushed_is_missed(self) -> None:
        write = self.pen()[3]
        for turn in (1, 2):
            self.write(turn)
        self.ledger.take('F 1 0 3\n')
        self.assertIn(f'sector {write.first}: old: {self.stamp(write.first)}, '
                      'wanted (1, 3)',
                      self.findings())
        self.write(3)
        self.assertEqual('', self.findings())

    def test_a_durable_write_says_nothing_of_others(self) -> None:
        for turn in (1, 3):
            self.write(turn)
        self.ledger.take('D 1 0 3\n')
        self.assertEqual('', self.findings())
        write = self.pen()[3]
        self.put(write.first, self.seal(write.first, 0, 0))
        self.assertIn('old', self.findings())

    def test_what_was_done_counts_from_the_next_flush(self) -> None:
        self.ledger.take('W 1 0 3\n')
        self.assertEqual('', self.findings())
        self.ledger.take('R 2\n')
        self.assertIn('wanted (1, 3)', self.findings())

    def test_what_is_settled_stays(self) -> None:
        write = self.write(1)
        self.assertEqual('', self.findings(settled=True))
        self.put(write.first, self.seal(write.first, 0, 0))
        self.assertIn(f'old: {self.stamp(write.first)}, wanted (1, 1)',
                      self.findings())

    def test_zeros(self) -> None:
        self.put(9, bytes(blocks.SECTOR))
        self.assertIn('sector 9: lost: zeros', self.findings())

    def test_torn_within_a_sector(self) -> None:
        self.put(9, self.get(9)[:100] + bytes(blocks.SECTOR - 100))
        self.assertIn('sector 9: torn', self.findings())

    def test_foreign(self) -> None:
        self.put(9, self.seal(9, 0, 0, owner=8))
        self.assertIn('sector 9: foreign: 8/', self.findings())

    def test_misplaced(self) -> None:
        self.put(9, self.get(10))
        self.assertIn('sector 9: misplaced: 7/10/', self.findings())

    def test_a_write_that_was_elsewhere(self) -> None:
        write = self.pen()[1]
        other = (write.first + ledger.GROUP) % 4096
        self.put(other, self.seal(other, 1, 1))
        self.assertIn(f'sector {other}: misplaced: 7/{other}/1/1',
                      self.findings())

    def test_a_run_that_never_was(self) -> None:
        self.put(9, self.seal(9, 3, 1))
        self.assertIn('sector 9: future: 7/9/3/1', self.findings())

    def test_what_a_run_read(self) -> None:
        write = self.write(1)
        self.program._look(1, write.first, 1)
        self.assertFalse([call for call in self.said.mock_calls
                          if call.args[0].startswith('E')])
        self.program._look(1, write.first, 2)
        self.ledger.take(self.said.call_args.args[0])
        self.assertEqual(1, len(self.ledger.findings))

    def test_a_run(self) -> None:
        """What one process says is what is there."""
        stop = self.path.with_name('stop')
        self.said.side_effect = lambda words: (
            stop.touch() if self.said.call_count > 20 else None)
        self.program._run(1, 0, str(stop))
        lines = [call.args[0] for call in self.said.mock_calls]
        self.assertTrue(lines[-1].startswith('W 1 0 '))
        self.assertTrue(any(line.startswith('D') for line in lines))
        self.ledger.take('\n'.join(lines))
        self.ledger.take('R 2')
        self.assertEqual('', self.findings())
        self.assertLess(0, self.ledger.flushes)

    def test_a_run_without_a_cache(self) -> None:
        """Every write is said to be durable, and none is flushed."""
        stop = self.path.with_name('stop')
        self.said.side_effect = lambda words: (
            stop.touch() if self.said.call_count > 20 else None)
        program = ledger.Program(str(self.path), OWNER, SIZE, through=True)
        self.addCleanup(os.close, program._device._handle)
        with mock.patch.object(program._device, 'flush') as flush:
            program._run(1, 0, str(stop))
        self.assertFalse(flush.called)
        lines = [call.args[0] for call in self.said.mock_calls]
        self.assertEqual([f'D 1 0 {turn}' for turn in range(1, len(lines))],
                         lines[:-1])
        self.ledger.take('\n'.join(lines))
        self.assertEqual('', self.findings())
        last = self.pen()[len(lines) - 1]
        self.put(last.first, self.seal(last.first, 0, 0))
        self.assertIn(f'sector {last.first}: old', self.findings())

    # -- families -----------------------------------------------------------

    def test_a_run_of_another_volume(self) -> None:
        """Sibling runs have numbers between, and leave nothing here."""
        self.ledger.begin(5)
        write = self.write(1, epoch=3)
        self.assertIn(f'sector {write.first}: foreign', self.findings())
        self.write(1, epoch=5)
        for sector in range(write.first, write.first + write.count):
            self.put(sector, self.seal(sector, 0, 0))
        self.assertEqual('', self.findings())

    def test_a_copy_has_the_past_of_its_original(self) -> None:
        write = self.write(1)
        self.ledger.take('F 1 0 1\n')
        copied = self.ledger.fork()
        self.assertEqual([], copied.compare(self.copy(), False))
        self.put(write.first, self.seal(write.first, 0, 0))
        self.assertIn('old', copied.compare(self.copy(), False)[0])

    def test_a_copy_has_nothing_of_its_originals_future(self) -> None:
        """And the other way round."""
        copied = self.ledger.fork()
        self.ledger.begin(3)
        copied.begin(4)
        for epoch, right, wrong in ((3, self.ledger, copied),
                                    (4, copied, self.ledger)):
            write = self.write(1, epoch)
            self.assertEqual([], right.compare(self.copy(), False))
            self.assertNotEqual([], wrong.compare(self.copy(), False))
            for sector in range(write.first, write.first + write.count):
                self.put(sector, self.seal(sector, 0, 0))
        self.ledger.take('F 3 0 1\n')
        self.assertEqual([], copied.compare(self.copy(), False))

    def test_what_a_copy_settles_its_original_does_not_miss(self) -> None:
        copied = self.ledger.fork()
        write = self.write(1)
        self.assertEqual([], copied.compare(self.copy(), settled=True))
        self.put(write.first, self.seal(write.first, 0, 0))
        self.assertNotEqual([], copied.compare(self.copy(), False))
        self.assertEqual('', self.findings())

    def turns(self, *left_out: int) -> list[ledger.Write]:
        """Let the second run make six writes but some; all its writes.

        Where two write the same the test would say nothing.
        """
        writes = [self.pen(2)[turn] for turn in range(1, 7)]
        sectors = [sector for write in writes for sector in range(
            write.first, write.first + write.count)]
        self.assertEqual(len(set(sectors)), len(sectors))
        for turn in range(1, 7):
            if turn not in left_out:
                self.write(turn, 2)
        return writes

    def test_a_copy_of_a_moment(self) -> None:
        """What was said is there, and all before the last that is."""
        copied = self.ledger.fork(writing=True)
        writes = self.turns(5, 6)
        self.assertEqual([], copied.compare(self.copy(), settled=True))
        # Now all that was found is missed, the last one too.
        self.put(writes[3].first, self.seal(writes[3].first, 0, 0))
        self.assertIn('old', copied.compare(self.copy(), False)[0])

    def test_a_copy_is_of_a_moment_only_once(self) -> None:
        """What it writes itself may be lost before it is flushed."""
        copied = self.ledger.fork(writing=True)
        self.assertEqual([], copied.compare(self.copy(), settled=True))
        copied.begin(3)
        for turn in (1, 3):
            self.write(turn, 3)
        self.assertEqual([], copied.compare(self.copy(), False))

    def test_a_copy_of_two_moments(self) -> None:
        """It has a write, and not one before it."""
        copied = self.ledger.fork(writing=True)
        writes = self.turns(2)
        # Its copies are looked at like that, too, but not its original.
        for one in (copied.fork(), copied):
            found = one.compare(self.copy(), False)
            self.assertEqual(writes[1].count, len(found))
            self.assertIn(f'sector {writes[1].first}: old', found[0])
        self.assertEqual('', self.findings())

    def test_a_copy_of_a_moment_in_the_middle_of_a_write(self) -> None:
        copied = self.ledger.fork(writing=True)
        write = max(self.turns(), key=lambda write: write.count)
        later = self.turns().index(write) + 1
        self.assertLess(1, write.count)
        for turn in range(later + 1, 7):
            for sector in range(self.pen(2)[turn].first,
                                self.pen(2)[turn].first
                                + self.pen(2)[turn].count):
                self.put(sector, self.seal(sector, 0, 0))
        self.put(write.first, self.seal(write.first, 0, 0))
        self.assertEqual([], copied.compare(self.copy(), False))

    def test_a_copy_has_no_more_than_its_originals_last_write(self) -> None:
        copied = self.ledger.fork(writing=True)
        self.ledger.take('W 2 0 5\n')
        self.turns()
        self.assertEqual([], copied.compare(self.copy(), False))
        copied.end_with(self.ledger)
        self.assertIn('future', copied.compare(self.copy(), False)[0])

    def test_flush_of_a_run_that_has_ended(self) -> None:
        self.write(1, 2)
        self.ledger.take('W 2 0 1\n')
        self.program.flush(2)
        self.ledger.take(self.said.call_args.args[0])
        self.assertEqual('', self.findings())
        self.put(self.pen(2)[1].first, self.seal(self.pen(2)[1].first, 0, 0))
        self.assertIn('old', self.findings())
