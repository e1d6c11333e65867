# SPDX-License-Identifier: Apache-2.0
"""tools/soak: random operations and outages for hours, then all is right."""
from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys
import time
from typing import Any

from lab import entry, install, kernel, virtualenv
from lab.lab import FAULTY_DRIVER, Lab
from lab.show import Failure, expect
from lab.soak import growth, model
from lab.soak.choice import Choice
from lab.soak.engine import Engine, Journal

_PROGRAM = 'tools/soak'
_JOURNALS = pathlib.Path('/var/tmp/cinder-dmclone-soak')
_NODES = 3


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description='Do to volumes whatever can be done, at '
        'random, in a lab of three real kernels, while services and nodes '
        'fail; at the end nothing may be lost, left or grown. Needs root on '
        'Debian or Ubuntu; installs what is missing. Exit status 0 means '
        'that all was as it must be.')
    parser.add_argument('hours', type=float, metavar='HOURS',
                        help='how long steps are taken (0.1 will do)')
    parser.add_argument('--seed', type=int, default=None,
                        help='take the steps of an earlier run again')
    parser.add_argument('--calm', action='store_true',
                        help='let nothing fail')
    parser.add_argument('--json', type=pathlib.Path, metavar='FILE',
                        help='write what came of it there, too')
    parser.add_argument('--name', default=entry.lab_name('soak'),
                        help='name of the lab (default: %(default)s)')
    kernel.add_option(parser)
    found = parser.parse_args()
    if found.seed is None:
        found.seed = random.randrange(10**6)
    return found


def again(args: argparse.Namespace) -> str:
    """The command that takes the same steps."""
    return (f'{_PROGRAM} {args.hours:g} --seed {args.seed}'
            f'{" --calm" * args.calm}')


def _run(args: argparse.Namespace) -> int:
    install.check_machine()
    expect(args.hours > 0, 'HOURS has to be more than 0')
    if args.json:
        # Rather now than after hours.
        expect(args.json.absolute().parent.is_dir(),
               f'no directory for {args.json}')
    kernel.use(args.kernel)
    journal = Journal(_JOURNALS / f'{args.name}.jsonl')
    journal.note(again=again(args), commit=virtualenv.commit())
    print(f'{again(args)}\njournal: {journal.path}', flush=True)
    lab = Lab(args.name, nodes=_NODES, driver=FAULTY_DRIVER,
              backend={'volume_clear': 'none', 'lab_gib': model.GIB},
              default={'rpc_response_timeout': 100})
    with entry.running(lab):
        return _soak(args, lab, journal)


def _soak(args: argparse.Namespace, lab: Lab, journal: Journal) -> int:
    begin = time.monotonic()

    def tell(text: str) -> None:
        print(f'{time.monotonic() - begin:6.0f} s {text}', flush=True)
    choice = Choice(args.seed, _NODES, args.calm)
    engine = Engine(lab, model.GIB, choice, journal, tell)
    error = ''
    try:
        engine.run(args.hours * 3600)
    except Failure as failure:
        error = str(failure)
        raise Failure(f'{error}\nseed {args.seed}, step {engine.number}; '
                      f'again: {again(args)}') from failure
    finally:
        print('\n'.join(growth.table(engine.samples)))
        print(', '.join(f'{count} {what}' for what, count
                        in engine.counts.most_common()))
        if args.json:
            args.json.write_text(json.dumps(_report(
                args, engine, lab, error), indent=2) + '\n')
    print(f'{engine.number} steps, {engine.tries} tries made again: nothing '
          'lost, left or grown.')
    return 0


def _report(args: argparse.Namespace, engine: Engine, lab: Lab,
            error: str) -> dict[str, Any]:
    return {'commit': virtualenv.commit(), 'again': again(args),
            'seed': args.seed, 'hours': args.hours, 'calm': args.calm,
            'kernel': lab.kernel_name, 'steps': engine.number,
            'counts': dict(engine.counts), 'tries': engine.tries,
            'samples': [vars(sample) for sample in engine.samples],
            'error': error}


def main() -> int:
    """The command's exit status."""
    args = _arguments()
    return entry.guard(_PROGRAM, lambda: _run(args))


if __name__ == '__main__':
    sys.exit(main())
