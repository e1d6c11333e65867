# SPDX-License-Identifier: Apache-2.0
"""Who opens block devices of a machine: all of them, asked from its kernel."""
from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator

from lab.errors import LabError
from lab.node import Node

# blkdev_get_by_dev(dev_t dev, fmode_t mode, void *holder), block/bdev.c of
# Linux 6.1: every open passes it, from outside and by other devices.
_BEGIN = '''
set -e
cd /sys/kernel/tracing
echo 0 >tracing_on
echo 8192 >buffer_size_kb
[ -e events/lab/opened ] ||
    echo 'p:lab/opened blkdev_get_by_dev dev=%di:u32' >>kprobe_events
echo 1 >events/lab/opened/enable
echo >trace
echo 1 >tracing_on
'''
_END = '''
set -e
cd /sys/kernel/tracing
echo 0 >tracing_on
grep -H overrun per_cpu/cpu*/stats
cat trace
'''
_LOST = re.compile(r'stats:overrun: ([1-9]\d*)')
_OPENED = re.compile(r'^\s*(?P<name>.+)-(?P<pid>\d+)\s+\[\d+\].* opened: '
                     r'.* dev=(?P<dev>\d+)$', re.M)


@dataclasses.dataclass(frozen=True, order=True)
class Open:
    """A program, by the first 15 characters of its name, and a device."""

    program: str
    major: int
    minor: int


@dataclasses.dataclass
class Opens:
    """What was seen, when it is over."""

    seen: frozenset[Open] = frozenset()

    def programs(self, *majors: int) -> set[str]:
        """Who has opened a device with one of these major numbers."""
        return {found.program for found in self.seen
                if found.major in majors}


@contextlib.contextmanager
def watched(node: Node) -> Iterator[Opens]:
    """Look at every open of every block device.

    :raises LabError: if some were missed
    """
    found = Opens()
    node.run(_BEGIN)
    try:
        yield found
    finally:
        text = node.run(_END).stdout
    found.seen = parse(text)


def parse(text: str) -> frozenset[Open]:
    """What the kernel has written down.

    :raises LabError: if it had no room for all
    """
    lost = _LOST.search(text)
    if lost:
        raise LabError(f'{lost[1]} opens were not written down')
    return frozenset(
        Open(each['name'], int(each['dev']) >> 20,
             int(each['dev']) & 0xfffff) for each in _OPENED.finditer(text))


def majors(node: Node, *names: str) -> list[int]:
    """Major numbers of drivers of block devices."""
    text = node.read('/proc/devices').partition('Block devices:')[2]
    pairs = [line.split() for line in text.splitlines() if line.strip()]
    return [int(number) for number, name in pairs if name in names]
