# SPDX-License-Identifier: Apache-2.0
"""Who runs which test: the shares of a long run, the workers of a stage.

Both follow from how long each test took when the times were recorded, and
from nothing else, so that the shares of one run fit together on whatever
machines they are run.
"""
from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

# Written by tools/test into .tox, and copied here now and then.
RECORDED = pathlib.Path(__file__).with_name('times.json')
# What a test is taken to need that was never timed, in seconds.
UNKNOWN = 30.0
# A test of ordinary length that takes no longer was skipped, in seconds.
SKIPPED = 0.1
# Tests that start something of their own beside the lab, once for a module,
# or what tempest has for a class: its users, often a volume.
_TOGETHER = re.compile(r'tests\..*\.test_(galera|power\w*)\.|'
                       r'(cinder_)?tempest.*?\.test_\w+\.\w+\.')

Times = Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Stage:
    """Tests that are run together.

    :ivar tests: seconds that each takes one worker
    :ivar start: seconds before the first, in each share that has some
    """

    name: str
    tests: Times
    start: float = 0.0
    workers: int = 1

    def units(self) -> dict[str, list[str]]:
        """The tests by what is never divided.

        Those that will be skipped are with what takes longest: by themselves
        they would be a run in which no test succeeds.
        """
        found: dict[str, list[str]] = {}
        for test in sorted(self.tests):
            found.setdefault(unit(test), []).append(test)
        length = {name: sum(self.tests[test] for test in tests)
                  for name, tests in found.items()}
        longest = max(length, key=length.__getitem__, default='')
        for name, seconds in length.items():
            if seconds <= SKIPPED and name != longest:
                found[longest] += found.pop(name)
        return found


def recorded(path: pathlib.Path = RECORDED) -> dict[str, dict[str, float]]:
    """Seconds by stage and test; empty if none were recorded."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


def timed(tests: Collection[str], known: Times, more: float = 1.0
          ) -> dict[str, float]:
    """Seconds of each test; of one never timed those of a usual one.

    :param more: how much longer it takes with what is done beside it
    """
    # One that takes nothing was skipped.
    taken = [seconds for seconds in known.values() if seconds > SKIPPED]
    usual = statistics.median(taken) if taken else UNKNOWN
    return {test: more * known.get(test, usual) for test in tests}


def unit(test: str) -> str:
    """The name of what a test is not divided from."""
    found = _TOGETHER.match(test)
    return found[0] if found else test


def workers(tests: Times, count: int) -> list[list[str]]:
    """The tests of each of so many workers, who need about the same time."""
    found = divide([Stage('', tests)], count)
    return [part[''] for part in found if part]


def worker_file(directory: pathlib.Path, name: str, tests: Times,
                count: int) -> list[str]:
    """Options of stestr for so many workers that need about the same time."""
    path = directory / f'{name}-workers.yaml'
    # JSON is a part of YAML.
    path.write_text(json.dumps([
        {'worker': [f'^{re.escape(test)}$' for test in part]}
        for part in workers(tests, count)]))
    return ['--worker-file', str(path)]


def divide(stages: Iterable[Stage], count: int) -> list[dict[str, list[str]]]:
    """The tests of each of so many shares, by stage.

    The longest come first, each to the share that has least. A stage that
    takes long to start is in as few shares as pays.
    """
    stages = sorted(stages, key=lambda stage: stage.name)
    limits = [count] * len(stages)
    least, found = _divide(stages, limits, count)
    # One stage after the other: of all combinations there are too many.
    better = True
    while better:
        better = False
        for index, stage in enumerate(stages):
            if not stage.start:
                continue
            for limit in range(1, count + 1):
                tried = [*limits[:index], limit, *limits[index + 1:]]
                length, shares = _divide(stages, tried, count)
                if length < least:
                    least, found, limits, better = length, shares, tried, True
    return found


def _divide(stages: Sequence[Stage], limits: Iterable[int], count: int
            ) -> tuple[float, list[dict[str, list[str]]]]:
    """Length of the longest share, and all shares.

    :param limits: in how many shares each stage is at most
    """
    work = sorted((
        (sum(stage.tests[test] for test in tests) / stage.workers, stage.name,
         stage.start, limit, tests)
        for stage, limit in zip(stages, limits)
        for tests in stage.units().values()),
        key=lambda each: (-each[0], each[1], each[-1]))
    shares: list[dict[str, list[str]]] = [{} for _ in range(count)]
    lengths = [0.0] * count
    for seconds, name, start, limit, tests in work:
        full = sum(name in share for share in shares) >= limit
        least, index = min(
            (lengths[index] + seconds + (0.0 if name in share else start),
             index)
            for index, share in enumerate(shares)
            if name in share or not full)
        lengths[index] = least
        shares[index].setdefault(name, []).extend(tests)
    return max(lengths), shares
