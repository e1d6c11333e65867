# SPDX-License-Identifier: Apache-2.0
"""What a machine is started with, and what its kernel says of opens."""
from __future__ import annotations

import pathlib
import tempfile
import unittest
from unittest import mock

from lab.errors import LabError
from lab.machine import image
from lab.machine.node import Machine
from lab.network import Network
from lab.node import Size
from tests.machine import opens

# As Linux 6.1 writes it; the trace has a heading.
_TRACE = '''\
per_cpu/cpu0/stats:overrun: 0
per_cpu/cpu1/stats:overrun: 0
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
     (udev-worker)-410     [001] ..... 93.184: opened: \
(blkdev_get_by_dev+0x0/0x2f0) dev=8388608
            pvscan-417     [000] ..... 93.402: opened: \
(blkdev_get_by_dev+0x0/0x2f0) dev=265289729
      kworker/u4:3-44      [000] ..... 94.001: opened: \
(blkdev_get_by_dev+0x0/0x2f0) dev=8388608
'''


class OpensTest(unittest.TestCase):

    def test_who_has_opened_what(self) -> None:
        found = opens.parse(_TRACE)
        self.assertEqual({opens.Open('(udev-worker)', 8, 0),
                          opens.Open('pvscan', 253, 1),
                          opens.Open('kworker/u4:3', 8, 0)}, found)
        self.assertEqual({'pvscan'}, opens.Opens(found).programs(253))

    def test_nobody_is_missed(self) -> None:
        with self.assertRaisesRegex(LabError, '7 opens were not written'):
            opens.parse(_TRACE.replace('cpu1/stats:overrun: 0',
                                       'cpu1/stats:overrun: 7'))


class MachineTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = pathlib.Path(folder)

    def test_it_is_told_what_any_node_is_told(self) -> None:
        made = image.Image(*map(pathlib.Path, ('root', 'kernel', 'initrd')))
        node = Machine(2, self.path, Network('none'), [self.path / 'shared'])
        with (mock.patch.object(image, 'ensure', return_value=made),
              mock.patch('lab.agent.build', return_value='agent')):
            words = node._command()
        said = words[words.index('-append') + 1].split()
        self.assertLessEqual(
            {'NODE=2', 'DATA=10.99.1.2/24', 'MGMT=10.99.0.2/24',
             f'SHARE={self.path}/shared', 'AGENT=agent'}, set(said))
        # In the order in which lab/machine/boot counts them.
        nets = [word for word in words if word.startswith('tap,')]
        self.assertEqual(['data2', 'mgmt2'], [
            word.partition('ifname=')[2].partition(',')[0] for word in nets])
        self.assertEqual('2', words[words.index('-smp') + 1])

    def test_a_volatile_disk_is_that_of_the_volumes(self) -> None:
        """A cut takes what was not flushed; the system's keeps all."""
        node = Machine(2, self.path, Network('none'), [],
                       Size(volatile=True))
        with (mock.patch.object(image, 'ensure'),
              mock.patch('lab.agent.build'),
              mock.patch('lab.install.ensure_volatile'),
              mock.patch('lab.disk.Disk.start') as start):
            words = node._command()
        start.assert_called_once_with()
        drives = {word.partition('id=')[2].partition(',')[0]: word
                  for word in words if word.startswith('if=none,')}
        self.assertIn(',cache=unsafe', drives['root'])
        (disk,) = node._disks
        self.assertEqual(self.path / 'disk.writes', disk.writes)
        self.assertIn(f'server.port={disk.port}', drives['disk'])
        self.assertNotIn('cache=unsafe', drives['disk'])
