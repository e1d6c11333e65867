# SPDX-License-Identifier: Apache-2.0
"""Runs the simulation by hand; see ``--help``."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import sys
import time
import typing

# The order of sets depends on it, and so does a schedule.
if os.environ.get('PYTHONHASHSEED') != '0':
    os.environ['PYTHONHASHSEED'] = '0'
    os.execv(sys.executable, [sys.executable, '-W', 'ignore', '-m',
                              'tests.simulation', *sys.argv[1:]])

from tests.simulation import explore  # noqa: E402


def _names(arguments: argparse.Namespace) -> typing.Iterator[str]:
    first = arguments.first
    if first is None:
        first = random.SystemRandom().randrange(10 ** 9)
    print(f'seeds from {first}')
    if not arguments.systematic:
        return explore.seeds(first)
    # In a run that ends early no kind has come too short.
    names = [*explore.messages(), *explore.pairs(first),
             *explore.shared_pairs(first), *explore.crashes()]
    random.Random(first).shuffle(names)
    print(f'{len(names)} systematic schedules')
    return itertools.chain(names, explore.seeds(first))


def main() -> int:
    """Explore, or show one schedule."""
    parser = argparse.ArgumentParser(
        prog='python -m tests.simulation',
        description='Explore schedules of the driver in memory.')
    parser.add_argument('--seed', type=int, help='show this schedule')
    parser.add_argument('--replay', metavar='NAME',
                        help='show this schedule, of any kind')
    parser.add_argument('--minutes', type=float, default=1.0,
                        help='how long to explore')
    parser.add_argument('--first', type=int,
                        help='the first seed; a fresh one if not given')
    parser.add_argument('--systematic', action='store_true',
                        help='every crash, message and pair before chance')
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    name = arguments.replay or (
        None if arguments.seed is None else f'seed/{arguments.seed}')
    if name:
        print(explore.describe(name))
        return 0
    end = time.monotonic() + 60 * arguments.minutes
    report = explore.explore(_names(arguments), explore.Report(),
                             lambda report: time.monotonic() > end)
    for outcome in report.found:
        print(f'{outcome.violation}\n    python -m tests.simulation --replay '
              f'"{outcome.spec.name}"')
    print(report)
    return 1 if report.found else 0


if __name__ == '__main__':
    sys.exit(main())
