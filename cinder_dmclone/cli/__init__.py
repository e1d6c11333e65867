# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone``: what an operator does on a node by hand.

Exit status: 0 if all is well, 1 if something is not, 2 if it could not be
done or told at all.
"""

from __future__ import annotations

import argparse
import sys

from cinder_dmclone.cli.errors import fail
from cinder_dmclone.cli import install_files
from cinder_dmclone import version

# The others need Cinder, which takes a second to load, or is in a container.
_COMMANDS = {
    'activate': "Bring the node's volumes up from its disks alone; run it at "
                'boot, before nova-compute.',
    'adopt': 'Make a logical volume of this node the volume, or the snapshot, '
             'that its tags say it is, against the database, which is older, '
             'was changed, or has another name of this node. Refused while '
             'cinder-volume works here, or on a node that may have it, too.',
    'check': 'Tell what this node lacks, and what mends it, in one line '
             'each; change nothing. A line that begins with "note:" is about '
             'what only you can decide, and does not count.',
    'deactivate': 'Remove all devices, sessions and exports of this node and '
                  'keep what is on its disks; "activate" brings them up '
                  'again. Refused while anybody uses one, or cinder-volume '
                  'runs.',
    'drain': 'Move each volume of this node that nobody uses, and each '
             'snapshot, to other nodes, wait until none is read from here '
             'any more, and tell what stays, and why. May be stopped and run '
             'again.',
    'forget': 'Delete a logical volume of this node that the driver reports '
              'and keeps, because nobody misses it. Refused for one that a '
              'volume or a snapshot may need.',
    'give-up': 'Let reads fail of what has not arrived of a volume, because '
               'its lender is lost; they would wait for ever. Lists what that '
               'is. Refused while the lender answers.',
    'list': 'Show each volume and each snapshot of the cloud that is on its '
            'way, of the backends of this node, from the database alone: '
            'where it is, and what it waits for. Reads the rows of all '
            'volumes and snapshots once.',
    'metrics': 'Print what Prometheus is told of the backends of this node, '
               'or write it to a file. Asks no other node.',
    'move-snapshot': 'Copy a snapshot to another node, where it is as soon as '
                     'all of it has arrived; until then it stays where it '
                     'is, and can be used. With the node that it is on, that '
                     'is taken back. Refused while something is done with '
                     'it, and without room there.',
    'recover': 'Go back to what a volume was before its last move: the node '
               'that it is on is lost, and with it all that was written '
               'since. Refused while that node answers.',
    'release': 'Keep a logical volume of this node no more for nodes that '
               'are lost, and will never say that they need it no more, nor '
               'for snapshots that the database does not know. Refused while '
               'such a node answers and has what borrows.',
    'repair-group': 'Make a volume group that LVM does not find, after a '
                    'power cut, what it was one change before. Run it while '
                    'cinder-volume is stopped.',
    'status': "Show each of the driver's logical volumes on this node: what "
              'it is, how much of it has arrived, whether the lender can be '
              'reached, and who uses it. Asks no other node.',
}
_WITH_JSON = ('list', 'status')


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    arguments = _parser().parse_args(argv)
    if arguments.command == install_files.NAME:
        return install_files.run(arguments)
    try:
        from cinder_dmclone.cli import backends
    except ModuleNotFoundError as error:
        return fail(f'{arguments.command} needs what cinder-volume has '
                    f'installed: {error} in {sys.prefix}')
    return backends.run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='cinder-dmclone', description='What an operator does by hand on '
        'a node that has volumes.', epilog='Exit status: 0 if all '
        'is well, 1 if something is not, 2 if it could not be done or told.')
    parser.add_argument('--version', action='version',
                        version=version.version(),
                        help='print the version and exit')
    _add_backends(parser, None)
    commands = parser.add_subparsers(dest='command', required=True,
                                     metavar='COMMAND')
    install_files.add_to(commands)
    for name, what in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=what)
        _add_backends(command, argparse.SUPPRESS)
        if name in _WITH_JSON:
            command.add_argument('--json', action='store_true',
                                 help='for programs')
    _add_yes(commands.choices['drain']).add_argument(
        '--parallel', type=number, default=2, metavar='N', help='so many '
        'volumes and snapshots are read from this node at a time, at most '
        '(2)')
    _add_decision(commands.choices['adopt'], 'LV', 'its UUID')
    _add_decision(commands.choices['forget'], 'LV', 'its UUID').add_argument(
        '--undo', action='store_true', help='keep one that was forgotten: a '
        'volume or a snapshot needs it after all')
    _add_decision(commands.choices['give-up']).add_argument(
        '--undo', action='store_true', help='wait for what has not arrived '
        'again: the lender is back')
    _add_decision(commands.choices['move-snapshot'],
                  'SNAPSHOT').add_argument(
        'node', metavar='NODE', help='its name in Cinder; HOST@BACKEND, or '
        'HOST')
    _add_decision(commands.choices['recover']).add_argument(
        '--from-lender', action='store_true', required=True,
        help='from the copy that the lender has')
    _add_decision(commands.choices['release'], 'LV',
                  'its UUID').add_argument(
        '--force', action='store_true', required=True,
        help='though nobody says that they need it no more')
    _add_decision(commands.choices['repair-group'], 'GROUP', 'its name')
    commands.choices['deactivate'].add_argument(
        '--unused', action='store_true', help='what nobody uses goes, the '
        'rest stays; for the end of a system')
    commands.choices['metrics'].add_argument(
        'file', nargs='?', metavar='FILE', help='replaced as a whole: for the '
        "textfile collector of node_exporter, in a file '*.prom'")
    return parser


def _add_decision(parser: argparse.ArgumentParser, of: str = 'VOLUME',
                  named: str = 'its id') -> argparse.ArgumentParser:
    """What a command has that gives something up.

    :param of: what it is about, and how that is named
    """
    parser.add_argument('of', metavar=of, help=named)
    return _add_yes(parser)


def _add_yes(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument('--yes', action='store_true', help='do it; without '
                        'this it is only shown what would be done')
    return parser


def number(text: str) -> int:
    """A number of things, at least one.

    :raises ValueError: if it is none
    """
    found = int(text)
    if found < 1:
        raise ValueError(text)
    return found


def _add_backends(parser: argparse.ArgumentParser,
                  default: str | None) -> None:
    """Options that may be in front of the command and behind it."""
    parser.add_argument('--config-file', action='append', metavar='FILE',
                        default=default,
                        help='in place of the cinder.conf that '
                        'cinder-volume finds by itself; may be repeated')
    parser.add_argument('--backend', action='append', metavar='SECTION',
                        default=default,
                        help='only this backend of cinder.conf; may be '
                        'repeated')
