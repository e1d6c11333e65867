# SPDX-License-Identifier: Apache-2.0
"""python3 -m lab: a lab for use by hand."""
from __future__ import annotations

import argparse
import json
import sys

from lab import entry, kernel
from lab.lab import Lab, default_name


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python3 -m lab',
        description='A storage cloud of real kernels and real services.')
    parser.add_argument('--name', default=default_name(),
                        help='name of the lab (default: %(default)s)')
    commands = parser.add_subparsers(dest='command', required=True)
    start = commands.add_parser('up', help='start a lab and leave it up')
    start.add_argument('--nodes', type=int, default=2)
    start.add_argument('--driver', help='class of the volume driver')
    start.add_argument('--option', action='append', default=[],
                       metavar='KEY=VALUE',
                       help='option of the backend\'s section')
    start.add_argument('--nova', action='store_true',
                       help='with Nova, so that there can be servers')
    kernel.add_option(start)
    commands.add_parser('down', help='remove a lab and all its traces')
    commands.add_parser('status', help='show what runs')
    commands.add_parser('env', help='print what a shell can source')
    commands.add_parser('reinstall', help='install the checkout again and '
                        'restart cinder-volume')
    run = commands.add_parser('exec', help='run a command in a node')
    run.add_argument('node', type=int)
    run.add_argument('argv', nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    if args.command == 'up':
        kernel.use(args.kernel)
        lab = Lab(args.name, nodes=args.nodes, driver=args.driver, keep=True,
                  nova=args.nova,
                  backend=dict(word.split('=', 1) for word in args.option))
        lab.start()
        print(f'The lab is up.  For a shell:  source <(python3 -m lab '
              f'--name {args.name} env)')
    elif args.command == 'down':
        Lab.remove(args.name)
    else:
        lab = Lab.attach(args.name)
        if args.command == 'status':
            print(json.dumps(lab.status(), indent=2))
        elif args.command == 'env':
            print(lab.shell())
        elif args.command == 'reinstall':
            lab.reinstall()
        else:
            words = args.argv
            result = lab.nodes[args.node - 1].run(
                words[0] if len(words) == 1 else words, check=False,
                timeout=3600)
            sys.stdout.write(result.stdout)
            sys.stderr.write(result.stderr)
            return result.code
    return 0


if __name__ == '__main__':
    sys.exit(entry.guard('lab', main))
