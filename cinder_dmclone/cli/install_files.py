# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone install-files``: one line for each file of the node."""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import typing

from cinder_dmclone.cli.errors import fail
from cinder_dmclone import files
from cinder_dmclone.files import install
from cinder_dmclone.files.install import State

NAME = 'install-files'

_DONE = {State.MISSING: 'installed', State.DIFFERENT: 'changed',
         State.LEFT_OVER: 'removed'}
_SYSTEM = pathlib.Path('/')
# Who has to be told that files have changed; what shows that it runs here.
_DAEMONS = (
    ('run/udev/control', ('udevadm', 'control', '--reload')),
    ('run/systemd/system', ('systemctl', 'daemon-reload')),
    ('run/multipathd.pid', ('multipathd', 'reconfigure')),
)


def add_to(commands: typing.Any) -> None:
    """Add the command to those of a parser."""
    parser = commands.add_parser(
        NAME, help='Put the files of a node where its systems read them. Run '
        'it again after each upgrade.',
        description='Put the files of a node where its systems read them: '
        'rootwrap filter, udev rule, systemd unit, list of kernel modules and '
        "multipathd's blacklist; then let udev, systemd and multipathd "
        'read them. What was changed by hand is kept beside the new file, as '
        '.NAME.old. It may be run any number of times.')
    parser.add_argument('--root', type=pathlib.Path, default=_SYSTEM,
                        metavar='DIR', help='the root of an image, in place '
                        'of that of the running system')
    parser.add_argument('--check', action='store_true', help='change nothing; '
                        'exit with 1 if there is anything to do')
    parser.add_argument('--rootwrap-only', action='store_true',
                        help='only the rootwrap filter: for a container with '
                        'cinder-volume, whose host has the other files')


def run(arguments: argparse.Namespace) -> int:
    """Do it, and say what was done; returns the exit status."""
    try:
        steps = install.plan(arguments.root, _command(arguments.root),
                             arguments.rootwrap_only)
        if not arguments.check:
            install.apply(steps)
    except files.CannotInstall as error:
        return fail(f'{error}. Nothing was changed.')
    except PermissionError as error:
        return fail(f'{error.filename}: {error.strerror}; run it as root. '
                    'Nothing was changed.')
    except OSError as error:
        return fail(f'{error.filename}: {error.strerror}. Nothing was '
                    'changed.')
    except install.HalfDone as error:
        return fail(f'{error}. Some files are new already: run it again.')
    for step in steps:
        print(_line(step, arguments.check))
    if arguments.check:
        return int(any(step.state in _DONE for step in steps))
    if arguments.root == _SYSTEM and not arguments.rootwrap_only:
        return _reload(arguments.root)
    return 0


def _line(step: install.Step, check: bool) -> str:
    if check:
        return f'{step.state.value} {step.path}'
    line = f'{_DONE.get(step.state, step.state.value)} {step.path}'
    if step.state is State.DIFFERENT:
        line += f' (what it was: {step.kept})'
    return line


def _command(root: pathlib.Path) -> str:
    """The path of this command, as the node will have it."""
    called = pathlib.Path(sys.argv[0])
    if called.name != 'cinder-dmclone':
        called = pathlib.Path(sysconfig.get_path('scripts'), 'cinder-dmclone')
    called = pathlib.Path(os.path.abspath(called))
    root = pathlib.Path(os.path.abspath(root))
    return str(_SYSTEM / called.relative_to(root)
               if called.is_relative_to(root) else called)


def _reload(root: pathlib.Path) -> int:
    """Let daemons read the files: they may have been there unread."""
    failed = 0
    for sign, words in _DAEMONS:
        if not (root / sign).exists() or not shutil.which(words[0]):
            continue
        done = subprocess.run(words, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            failed = fail(f'the files are there, but "{" ".join(words)}" '
                          f'failed: {done.stdout}')
    return failed
