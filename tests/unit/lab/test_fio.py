# SPDX-License-Identifier: Apache-2.0
"""How loads are run, and what is read of them."""
from __future__ import annotations

import json
import unittest

from lab import fio


def job(rate: float, **more: object) -> dict[str, object]:
    """What fio says of a job that writes."""
    return {'write': {
        'iops': rate, 'lat_ns': {'max': 61_500_000},
        'clat_ns': {'percentile': {
            '50.000000': 120_000, '99.000000': 2_500_000}}}, **more}


class LoadTest(unittest.TestCase):

    def test_one(self) -> None:
        output = 'fio: a warning\n' + json.dumps({'jobs': [job(7000.5)]})
        self.assertEqual(fio.Load(7000.5, 61.5, 0.12, 2.5),
                         fio.Load.parse(output))

    def test_several(self) -> None:
        output = json.dumps({'jobs': [job(1.0), job(2.0)]})
        self.assertEqual([1.0, 2.0], [
            load.rate for load in fio.Load.parse_all(output)])

    def test_of_several_none_is_the_one(self) -> None:
        output = json.dumps({'jobs': [job(1.0), job(2.0)]})
        self.assertRaises(ValueError, fio.Load.parse, output)


class CopyTest(unittest.TestCase):

    def test_each_device_has_its_direction(self) -> None:
        words = fio.copy([('/dev/a', '/dev/b')], 2)
        read, write = (words.index(f'--name={name}')
                       for name in ('read', 'write'))
        self.assertIn('--iodepth=32', words[:read])
        self.assertEqual(['--name=read', '--rw=read', '--filename=/dev/a'],
                         words[read:write])
        self.assertEqual(['--name=write', '--rw=write',
                          '--filename=/dev/b'], words[write:])

    def test_a_colon_is_part_of_a_name(self) -> None:
        self.assertIn(r'--filename=/dev/block/8\:0',
                      fio.copy([('/dev/block/8:0', '/dev/b')], 2))

    def test_several_are_one_copy(self) -> None:
        words = fio.copy([('/dev/a', '/dev/b'), ('/dev/c', '/dev/d')], 2)
        self.assertEqual(
            ['/dev/a', '/dev/b', '/dev/c', '/dev/d'],
            [word.partition('=')[2] for word in words
             if word.startswith('--filename=')])
        mib = 1 << 20
        self.assertEqual(7, fio.copied(json.dumps({'jobs': [
            {'read': {'bw_bytes': read * mib},
             'write': {'bw_bytes': write * mib}}
            for read, write in ((3, 0), (0, 5), (4, 0), (0, 6))]})))

    def test_the_slower_one_counts(self) -> None:
        mib = 1 << 20
        for read, write in (3, 5), (5, 3):
            output = 'a warning\n' + json.dumps({'jobs': [
                {'read': {'bw_bytes': read * mib}, 'write': {'bw_bytes': 0}},
                {'read': {'bw_bytes': 0},
                 'write': {'bw_bytes': write * mib}}]})
            self.assertEqual(3, fio.copied(output))


class CommandTest(unittest.TestCase):

    def test_what_all_jobs_have_comes_before_the_first(self) -> None:
        """fio takes what follows a name for that job alone."""
        words = fio.command(['/dev/a', '/dev/b'], *fio.SYNC,
                            *fio.for_seconds(2.5))
        first = words.index('--name=load')
        self.assertIn('--ioengine=psync', words[:first])
        self.assertIn('--runtime=2.5', words[:first])
        self.assertEqual(
            ['--name=load', '--filename=/dev/a',
             '--name=load', '--filename=/dev/b'], words[first:])

    def test_one_device(self) -> None:
        words = fio.command('/dev/a', kind='read', size='1m')
        self.assertEqual(['--name=load', '--filename=/dev/a'], words[-2:])
        self.assertIn('--rw=read', words)
        self.assertIn('--bs=1m', words)
