# SPDX-License-Identifier: Apache-2.0
"""tools/demo: a volume that follows its server, step by step."""
from __future__ import annotations

import argparse
import sys
import time

from lab import entry, install, kernel, logs, remains, virtualenv
from lab.compute.journey import ServerJourney
from lab.compute.servers import FLAVOR
from lab.errors import LabError
from lab.journey import Journey
from lab.lab import Lab
from lab.show import Console, expect

_PROGRAM = 'tools/demo'
# In the lab's directory once a lab is to stay up; for a shell to source.
_OPENRC = 'openrc'


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description='Show a volume that follows its server '
        'from one node to another, in a lab of two real kernels. Needs root '
        'on Debian or Ubuntu; installs what is missing. Exit status 0 means '
        'that every step was verified.')
    parser.add_argument('--name', help='name of the lab (default: '
                        f'{_lab_name(False)}, {_lab_name(True)})')
    parser.add_argument('--nova', action='store_true',
                        help='with a real server, booted from the volume '
                        'and live-migrated by Nova')
    kernel.add_option(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument('--keep', action='store_true',
                      help='leave the lab up, to go on by hand')
    what.add_argument('--down', action='store_true',
                      help='remove a lab that was left up')
    found = parser.parse_args()
    found.name = found.name or _lab_name(found.nova)
    return found


def _lab_name(nova: bool) -> str:
    return entry.lab_name('nova-demo' if nova else 'demo')


def _down(name: str) -> str:
    """The command that removes a lab."""
    known = {_lab_name(False): '', _lab_name(True): ' --nova'}
    return f'{_PROGRAM} --down{known.get(name, f" --name {name}")}'


def kept(name: str, nova: bool, wanted: str | None) -> Lab | None:
    """A lab that was left up and is whole, on the kernel that is wanted."""
    try:
        lab = Lab.attach(name)
    except LabError:
        return None
    status = lab.status()
    running = [*status['services'].values(), *status['nodes'].values()]
    if (lab.directory / _OPENRC).exists() and all(running) and (
            bool(lab.cloud) == nova) and wanted in (None, lab.kernel_name):
        return lab
    return None


def _start(console: Console,
           args: argparse.Namespace) -> tuple[Lab, bool]:
    """The lab, and whether it was up before."""
    name, nova = args.name, args.nova
    lab = kept(name, nova, args.kernel)
    if lab:
        console.line()
        console.line(f'Using the lab {name}, which is up.')
        return lab, True
    what, each = (('a Nova and a Cinder', 'cinder-volume and nova-compute')
                  if nova else ('a Cinder', 'cinder-volume'))
    with console.step(f'Start two kernels and {what} around them') as step:
        lab = Lab(name, nova=nova, keep=args.keep)
        lab.start()
        step.result = (f'{len(lab.nodes)} nodes, {len(lab.services)} '
                       f'services, {each} on each node')
    return lab, False


def _write_openrc(lab: Lab) -> None:
    checkout = virtualenv.CHECKOUT
    (lab.directory / _OPENRC).write_text(
        f'{lab.shell()}\n'
        f'node() {{ (cd {checkout} && {install.PYTHON} -m lab '
        f'--name {lab.name} exec "$@"); }}\n')


def _say_how_to_go_on(console: Console, lab: Lab, volume: str) -> None:
    use = (f'server create --flavor {FLAVOR} --nic none --volume {volume} web'
           if lab.cloud else f'volume attachment create --server web {volume}')
    console.line()
    for text in (
            'The lab stays up. To go on by hand:', '',
            f'   source {lab.directory / _OPENRC}',
            '   openstack volume list', f'   openstack {use}',
            "   node 2 'lvs; dmsetup ls'", '',
            f'To remove it: {_down(lab.name)}'):
        console.line(text)


def _run(args: argparse.Namespace) -> int:
    install.check_machine()
    if args.down:
        Lab.remove(args.name)
        print(f'The lab {args.name} is gone.')
        return 0
    kernel.use(args.kernel)
    console = Console()
    begin = time.monotonic()
    console.line('A volume that follows its server.')
    lab, keep = _start(console, args)
    try:
        if args.keep:
            _write_openrc(lab)
            keep = True
        journey = (ServerJourney if args.nova else Journey)(lab, console)
        journey.run()
        if keep:
            _say_how_to_go_on(console, lab, journey.volume)
    except BaseException as exc:
        with entry.undisturbed():
            if not isinstance(exc, KeyboardInterrupt):
                logs.keep(lab.directory)
            if keep:
                print(f'the lab stays up; to remove it: {_down(lab.name)}',
                      file=sys.stderr)
        raise
    finally:
        if not keep:
            with entry.undisturbed():
                lab.stop()
    if not keep:
        left = remains.traces(lab.name)
        expect(not left, f'left behind: {", ".join(left)}')
    console.line()
    console.line(f'Every step was verified; {time.monotonic() - begin:.0f} s '
                 'in all.')
    return 0


def main() -> int:
    """The command's exit status."""
    args = _arguments()
    return entry.guard(_PROGRAM, lambda: _run(args))


if __name__ == '__main__':
    sys.exit(main())
