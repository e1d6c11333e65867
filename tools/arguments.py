# SPDX-License-Identifier: Apache-2.0
"""What tools/test understands."""
from __future__ import annotations

import argparse
import os


def _share(text: str) -> tuple[int, int]:
    """``1/4``: number and count."""
    number, count = map(int, text.split('/'))
    if not 1 <= number <= count:
        raise ValueError(text)
    return number, count


def parse() -> argparse.Namespace:
    """The command line; ends the program if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog='tools/test', description='Run every test there is: lint, unit '
        'tests, the simulation, documents, and the tests in '
        'labs. Installs what is missing.')
    only = parser.add_mutually_exclusive_group()
    only.add_argument('--unit', action='store_true',
                      help='only what needs no root')
    for name, what in (('functional', 'a lab'), ('nova', 'a lab with Nova'),
                       ('tempest', 'a lab, those of tempest'),
                       ('tempest-nova', 'a lab with Nova, those of tempest, '
                        'with --long'),
                       ('machine', 'a stock distribution, with --long')):
        only.add_argument(f'--{name}', nargs='*', metavar='TEST',
                          help=f'only the tests in {what}, of these names '
                          '(regular expressions)')
    parser.add_argument('--kernel', choices=('fast', 'distribution'),
                        help='what the nodes of labs run on (default: fast '
                        'where it can be had; with --long: both)')
    parser.add_argument('--long', action='store_true',
                        help='tests at their full length: every crash point, '
                        'schedules of fresh seeds, and all that takes long')
    parser.add_argument('--share', type=_share, default=(1, 1),
                        metavar='K/N', help='with --long: the K-th of N parts '
                        'of about the same length, which together are all')
    arguments = parser.parse_args()
    if arguments.share != (1, 1) and not arguments.long:
        parser.error('--share is for --long')
    for name in ('machine', 'tempest_nova'):
        if getattr(arguments, name) is not None and not arguments.long:
            parser.error(f'--{name.replace("_", "-")} is for --long')
    if not arguments.unit and os.geteuid() != 0:
        parser.exit(1, 'tools/test: the lab needs root (try: sudo '
                    'tools/test, or tools/test --unit)\n')
    return arguments
