# SPDX-License-Identifier: Apache-2.0

import random
import unittest

from cinder_dmclone.host.dm import table
from cinder_dmclone.units import Sectors


def _random_devnum(rng: random.Random) -> str:
    return f'{rng.randrange(1, 300)}:{rng.randrange(1 << 20)}'


def _random_target(rng: random.Random) -> table.Target:
    one, two, three = (_random_devnum(rng) for _ in range(3))
    targets: list[table.Target] = [
        table.Linear(one, Sectors(rng.randrange(1 << 40))),
        table.Multipath(rng.choice([None, one]),
                        rng.choice([True, False])),
        table.Clone(
            one, two, three, Sectors(1 << rng.randrange(3, 21)),
            frozenset(rng.sample(['no_hydration', 'no_discard_passdown'],
                                 rng.randrange(3))),
            {name: rng.randrange(1, 1000) for name in rng.sample(
                ['hydration_threshold', 'hydration_batch_size'],
                rng.randrange(3))})]
    return rng.choice(targets)


class TableTest(unittest.TestCase):

    def test_what_is_printed_parses_to_the_same(self) -> None:
        rng = random.Random(1)
        for _ in range(500):
            segments, start = [], Sectors(0)
            for _ in range(rng.randrange(1, 4)):
                length = Sectors(rng.randrange(1, 1 << 40))
                segments.append(
                    table.Segment(start, length, _random_target(rng)))
                start += length
            value = table.Table(tuple(segments))
            self.assertEqual(value, table.Table.parse(str(value)))
            self.assertEqual(start, value.length)

    def test_multipath_as_the_kernel_rewrites_it(self) -> None:
        value = table.Table.single(
            Sectors(2048), table.Multipath('8:16', True))
        self.assertEqual(
            '0 2048 multipath 3 queue_if_no_path queue_mode bio 0 1 1 '
            'round-robin 0 1 1 8:16 1000', str(value))
        self.assertEqual(value, table.Table.parse(
            '0 2048 multipath 4 queue_if_no_path retain_attached_hw_handler '
            'queue_mode bio 0 1 1 round-robin 0 1 1 8:16 1000 '))

    def test_multipath_without_a_path(self) -> None:
        value = table.Table.single(Sectors(8), table.Multipath(None, True))
        self.assertEqual(
            '0 8 multipath 3 queue_if_no_path queue_mode bio 0 0 0',
            str(value))
        self.assertEqual(value, table.Table.parse(
            '0 8 multipath 4 queue_if_no_path retain_attached_hw_handler '
            'queue_mode bio 0 0 0 '))

    def test_multipath_after_fail_if_no_path(self) -> None:
        self.assertEqual(
            table.Table.single(Sectors(8), table.Multipath(None, False)),
            table.Table.parse('0 8 multipath 3 retain_attached_hw_handler '
                              'queue_mode bio 0 0 0 '))

    def test_clone_as_the_kernel_prints_it(self) -> None:
        parsed = table.Table.parse(
            '0 524288 clone 254:3 254:0 254:4 8 2 no_discard_passdown '
            'no_hydration 4 hydration_threshold 64 hydration_batch_size 32')
        self.assertEqual(
            table.Clone('254:3', '254:0', '254:4', Sectors(8),
                        frozenset(['no_hydration', 'no_discard_passdown']),
                        {'hydration_batch_size': 32,
                         'hydration_threshold': 64}),
            parsed.segments[0].target)

    def test_clone_without_optional_arguments(self) -> None:
        parsed = table.Table.parse('0 8 clone 1:1 1:2 1:3 8')
        self.assertEqual(table.Clone('1:1', '1:2', '1:3', Sectors(8)),
                         parsed.segments[0].target)

    def test_what_others_made_is_kept_as_text(self) -> None:
        for line in ('0 8 striped 2 128 1:1 0 1:2 0',
                     '0 8 delay 1:1 0 500 1:2 0 0 1:1 0 0',
                     '0 8 delay 1:1 0 0',
                     '0 8 multipath 0 0 1 1 round-robin 0 1 1 8:16 1000',
                     '0 8 multipath 2 queue_mode bio 0 1 1 round-robin 0 2 1 '
                     '8:16 1000 8:32 1000',
                     '0 8 clone 1:1 1:2'):
            parsed = table.Table.parse(line)
            self.assertIsInstance(parsed.segments[0].target, table.Other)
            self.assertEqual(line, str(parsed))

    def test_device_names_are_refused(self) -> None:
        for target in (table.Linear('/dev/sda'),
                       table.Multipath('/dev/sda', True)):
            with self.assertRaises(ValueError):
                str(target)

    def test_no_text_is_no_table(self) -> None:
        self.assertEqual(table.Table(), table.Table.parse('\n'))
        self.assertEqual(Sectors(0), table.Table().length)

    def test_a_hole_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            table.Table.parse('0 8 error\n16 8 error')

    def test_nonsense_is_refused(self) -> None:
        for text in ('0 8', 'a b error', 'No devices found'):
            with self.assertRaises(ValueError):
                table.Table.parse(text)

    def test_has(self) -> None:
        value = table.Table.parse('0 8 error\n8 8 linear 1:1 0')
        self.assertTrue(value.has(table.Linear))
        self.assertFalse(value.has(table.Clone))
