# SPDX-License-Identifier: Apache-2.0
"""What came of a run of stestr: counts, times, and what was raised."""
from __future__ import annotations

import csv
import datetime
import json
import pathlib
import re
import subprocess
from collections.abc import Mapping, Sequence

from tools import shares

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Seconds of each test of this run, in the form of shares.RECORDED.
TIMES = ROOT / '.tox/times.json'
# How many of the slowest tests are told of in the end.
SLOWEST = 10
# How much of each traceback is repeated below the log.
ERROR_LINES = 8
# In what stestr prints: a test that failed, and what it raised.
_FAILED = re.compile(r'^\{\d+\} (\S+) [^\n]*FAILED\n(.*?)'
                     r'(?=^\{\d+\} |^=+\nFailed |\Z)', re.M | re.S)
_RAISED = re.compile(r'^Captured traceback\S*:\n~+\n(.*?)(?=^Captured |\Z)',
                     re.M | re.S)


def stream_number(results: Sequence[str]) -> str:
    """The number of the last stestr run; '' if there was none."""
    repository = pathlib.Path(results[results.index('--repo-url') + 1])
    try:
        return (repository / '.stestr/next-stream').read_text()
    except FileNotFoundError:
        return ''


def count(results: Sequence[str]) -> tuple[int, int]:
    """Passed and failed of the last stestr run; skipped ones are neither."""
    stream = subprocess.run(results, cwd=ROOT, stdout=subprocess.PIPE)
    stats = subprocess.run(
        [str(pathlib.Path(results[0]).with_name('subunit-stats'))],
        input=stream.stdout, stdout=subprocess.PIPE).stdout.decode()
    numbers = dict(re.findall(r'^(\w+) tests:\s+(\d+)$', stats, re.M))
    return int(numbers.get('Passed', 0)), int(numbers.get('Failed', 0))


def times(results: Sequence[str]) -> dict[str, float]:
    """Seconds of each test of the last stestr run.

    Not from subunit-ls: for it a test begins anew with each of its details,
    which all come at the end.
    """
    stream = subprocess.run(results, cwd=ROOT, stdout=subprocess.PIPE)
    table = subprocess.run(
        [str(pathlib.Path(results[0]).with_name('subunit2csv'))],
        input=stream.stdout, stdout=subprocess.PIPE).stdout.decode()
    return {row['test']: _seconds(row)
            for row in csv.DictReader(table.splitlines())}


def _seconds(row: Mapping[str, str]) -> float:
    begin, end = (datetime.datetime.fromisoformat(row[key])
                  for key in ('start_time', 'stop_time'))
    return (end - begin).total_seconds()


def slowest(found: Mapping[str, Mapping[str, float]],
            most: int = SLOWEST) -> str:
    """The tests that took longest, of all stages."""
    every = [(seconds, test) for tests in found.values()
             for test, seconds in tests.items()]
    lines = [f'{seconds:7.1f} s  {test}\n'
             for seconds, test in sorted(every, reverse=True)[:most]]
    return ''.join(['the slowest tests:\n', *lines]) if lines else ''


def keep(name: str, found: Mapping[str, float]) -> None:
    """Write down how long tests of a stage took, beside what is known."""
    kept = shares.recorded(TIMES)
    kept.setdefault(name, {}).update(found)
    TIMES.write_text(json.dumps(kept, indent=1, sort_keys=True) + '\n')


def raised(log: str) -> str:
    """The ends of what failed tests raised, to be seen at a log's end."""
    found = []
    for test, details in _FAILED.findall(log):
        for text in _RAISED.findall(details):
            lines = [line for line in text.splitlines() if line.strip()]
            found += [test, *lines[-ERROR_LINES:]]
    return ''.join(f'{line}\n' for line in found)
