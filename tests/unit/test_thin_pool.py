# SPDX-License-Identifier: Apache-2.0
"""Lines of the kernel about thin pools and what is in them."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

from cinder_dmclone.host import thin_pool
from cinder_dmclone.units import Bytes

MIB = 1 << 20
# As Linux 6.1 prints them.
TABLE = '0 8388608 thin-pool 254:0 254:1 128 0 0'
STATUS = ('0 8388608 thin-pool 1 103/1024 45056/65536 - rw discard_passdown '
          'queue_if_no_space - 1024')


class UsageTest(unittest.TestCase):

    def test_a_pool_that_is_well(self) -> None:
        usage = thin_pool.Usage.parse(TABLE, STATUS)
        self.assertEqual(
            thin_pool.Usage(Bytes(4096 * MIB), Bytes(2816 * MIB),
                            Bytes(4 * MIB), Bytes(103 << 12), True), usage)
        self.assertEqual(1280 * MIB, usage.free)
        self.assertEqual((68.75, 10), (usage.percent,
                                       int(usage.metadata_percent)))
        self.assertTrue(usage.above(68))
        self.assertFalse(usage.above(69))

    def test_metadata_counts(self) -> None:
        usage = thin_pool.Usage.parse(
            TABLE, STATUS.replace('103/', '900/'))
        self.assertTrue(usage.above(thin_pool.MOST))

    def test_a_pool_that_does_not_zero(self) -> None:
        table = ('0 8388608 thin-pool 254:0 254:1 128 0 2 '
                 'skip_block_zeroing no_discard_passdown')
        self.assertFalse(thin_pool.Usage.parse(table, STATUS).zeroes)

    def test_a_pool_that_cannot_be_used(self) -> None:
        for words, reason in (
                (('rw', 'ro'), 'read-only'),
                (('_space - ', '_space needs_check '), 'to be checked'),
                ((STATUS, '0 8388608 thin-pool Fail'), 'has failed'),
                ((STATUS, '0 8388608 thin-pool Error'), 'has failed')):
            usage = thin_pool.Usage.parse(TABLE, STATUS.replace(*words))
            self.assertIn(reason, usage.state)
        self.assertTrue(usage.above(99))

    def test_a_full_pool_can_be_emptied(self) -> None:
        usage = thin_pool.Usage.parse(TABLE, STATUS.replace(
            'rw', 'out_of_data_space').replace('45056', '65536'))
        self.assertEqual(('', 100), (usage.state, usage.percent))

    def test_what_a_volume_takes(self) -> None:
        for line, taken in (('0 8192 thin 4096 8191', 4096 * 512),
                            ('0 8192 thin 0 -', 0), ('0 8192 thin -', None),
                            ('0 8192 thin Fail', None),
                            ('0 8192 linear 8:0', None), ('', None)):
            self.assertEqual(taken, thin_pool.mapped(line))


class AdviceTest(unittest.TestCase):

    def advice(self, timeout: str | None, check: str | None) -> list[str]:
        folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        if timeout is not None:
            (folder / 'timeout').write_text(f'{timeout}\n')
        with mock.patch.object(thin_pool, 'TIMEOUT', folder / 'timeout'), (
                mock.patch.object(shutil, 'which', lambda name, path: check)):
            return list(thin_pool.advice())

    def test_a_node_that_has_all(self) -> None:
        for timeout in ('0', None):
            self.assertEqual([], self.advice(timeout, '/usr/sbin/thin_check'))

    def test_writes_that_fail(self) -> None:
        found, = self.advice('60', '/usr/sbin/thin_check')
        self.assertIn('wait for 60 s, then they fail', found)

    def test_no_tools(self) -> None:
        found, = self.advice('0', None)
        self.assertIn('install thin-provisioning-tools', found)
