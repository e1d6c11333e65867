# SPDX-License-Identifier: Apache-2.0
"""Loads of servers: how ``fio`` is run, and what it says."""
from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence
from typing import Any

from lab.processes import wait_for

if typing.TYPE_CHECKING:
    from lab.node import Node

# One write after the other, and as many at once as a busy server has.
SYNC = ('--ioengine=psync',)
DEEP = ('--ioengine=libaio', '--iodepth=32')


def command(paths: str | Sequence[str], *words: str, kind: str = 'randwrite',
            size: str = '4k') -> list[str]:
    """The command line of a load without page cache.

    :param paths: of one device, or of several with a job of its own each
    :param words: whatever else all jobs have, as ``for_seconds``
    """
    jobs = [paths] if isinstance(paths, str) else list(paths)
    return ['fio', '--direct=1', f'--rw={kind}', f'--bs={size}', '--thread',
            *words, '--output-format=json',
            *(word for path in jobs
              for word in ('--name=load', f'--filename={path}'))]


def for_seconds(seconds: float) -> tuple[str, ...]:
    """Words for a load that goes on so long, however small the device."""
    return '--norandommap', '--time_based', f'--runtime={seconds:g}'


def copy(pairs: Sequence[tuple[str, str]], seconds: float) -> list[str]:
    """A command that reads devices and writes others at the same time.

    See copied(). Each has 32 requests of 256 KiB under way.

    :param pairs: a device to read and one to write, each
    """
    jobs = [(kind, path) for pair in pairs
            for kind, path in zip(('read', 'write'), pair)]
    return ['fio', '--direct=1', *DEEP, '--bs=256k', '--thread',
            *for_seconds(seconds), '--output-format=json',
            *(word for kind, path in jobs for word in (
                # Else a colon begins the next file.
                f'--name={kind}', f'--rw={kind}',
                '--filename=' + path.replace(':', r'\:')))]


def copied(output: str) -> float:
    """MiB/s of a copy: what the slower of both sides got."""
    jobs = json.loads(output[output.index('{'):])['jobs']
    return min(sum(job[kind]['bw_bytes'] for job in jobs)
               for kind in ('read', 'write')) / float(1 << 20)


@dataclasses.dataclass(frozen=True)
class Load:
    """What ``fio`` says of a load.

    :ivar rate: requests a second
    :ivar longest: the longest request, in ms
    :ivar typical: the median of the requests, in ms
    :ivar late: what 99 % of the requests do not exceed, in ms
    """

    rate: float
    longest: float
    typical: float
    late: float

    @classmethod
    def parse(cls, output: str, direction: str = 'write') -> Load:
        """From the JSON of a run with one job that reads or writes."""
        (found,) = cls.parse_all(output, direction)
        return found

    @classmethod
    def parse_all(cls, output: str, direction: str = 'write') -> list[Load]:
        """The same of a run with several jobs, in their order."""
        # Warnings may come first.
        found = json.loads(output[output.index('{'):])
        return [cls._of(job[direction]) for job in found['jobs']]

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Load:
        percentiles = found['clat_ns']['percentile']
        return cls(found['iops'], found['lat_ns']['max'] / 1e6,
                   percentiles['50.000000'] / 1e6,
                   percentiles['99.000000'] / 1e6)


class Running:
    """A load on a node, where no other runs; used as a context manager."""

    def __init__(self, node: Node, words: Sequence[str]) -> None:
        self._node = node
        self._command = node.popen(words)

    def __enter__(self) -> Running:
        wait_for('fio', lambda: self.ended() or self._node.run(
            'pgrep -x fio', check=False).stdout, 30)
        return self

    def __exit__(self, *exc: object) -> None:
        self._command.kill()

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._command.poll() is not None

    def wait(self) -> Load:
        """What it says at its end."""
        return Load.parse(self._command.wait().stdout)

    def end(self) -> Load:
        """The same, and it ends now."""
        # It prints its figures when it is interrupted.
        self._node.run('pkill -INT -x fio', check=False)
        return self.wait()
