# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone check``: what this node lacks, and what mends it.

cinder-volume refuses to start for the same reasons (``preflight``). What it
cannot tell because its privileged helper does not start is told here first.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import typing

from oslo_config import cfg
from oslo_rootwrap import wrapper

from cinder_dmclone.cli.errors import fail
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm_filter
from cinder_dmclone.host import thin_pool
from cinder_dmclone import preflight
from cinder_dmclone.ports import Host
from cinder_dmclone import privileged

CONF = cfg.CONF

_ROOTWRAP = 'cinder-rootwrap'
_SOCKET = '/tmp/check/privsep.sock'
# What restores LIO's configuration at boot, by distribution.
_RESTORERS = ('target.service', 'rtslib-fb-targetctl.service')


class CannotTell(Exception):
    """Why the rest is not known, in one line."""


def run(hosts: typing.Iterable[Host],
        service_opts: typing.Sequence[cfg.Opt],
        unread: typing.Mapping[str, str]) -> int:
    """Print a line for each thing that is missing; returns the exit status.

    Lines that begin with "note:" are about what only an operator can decide.

    :param hosts: this node's backends
    :param service_opts: see ``preflight.problems``
    :param unread: those that are none of the hosts, and why
    """
    missing = _options(unread)
    notes: list[str] = []
    unknown: Exception | None = None
    try:
        missing += _rootwrap()
        privileged.ready()
        for host in hosts:
            missing += preflight.problems(host, service_opts)
            missing += preflight.pool_problems(host)
            missing += preflight.group_problems(host)
            if host.group.pool:
                notes += thin_pool.advice()
        notes += [*lvm_filter.advice(), *_restorers()]
    except (CannotTell, exceptions.DMCloneException) as error:
        unknown = error
    # Backends of one node lack the same.
    for line in dict.fromkeys(missing):
        print(line)
    for note in dict.fromkeys(notes):
        print(f'note: {note}')
    if unknown:
        fail(str(unknown))
    elif not missing:
        print('Nothing is missing.')
    return 1 if missing else 2 if unknown else 0


def _options(unread: typing.Mapping[str, str]) -> list[str]:
    return [f'Backend {node} cannot be looked at: {why}'
            for node, why in unread.items()]


def _rootwrap() -> typing.Iterator[str]:
    """Ask rootwrap's own code whether it would start the helper."""
    words = privileged.context.helper_command(_SOCKET)
    if [os.path.basename(word) for word in words[1:2]] != [_ROOTWRAP]:
        # The operator has a command of another kind.
        return
    config, command = words[2], words[3:]
    try:
        with open(config, encoding='utf-8') as stream:
            parser = configparser.RawConfigParser()
            parser.read_file(stream)
        settings = wrapper.RootwrapConfig(parser)
        filters = wrapper.load_filters(settings.filters_path)
        wrapper.match_filter(filters, command, settings.exec_dirs)
    except FileNotFoundError:
        yield f'{config} is missing: set rootwrap_config in cinder.conf.'
    except OSError as error:
        raise CannotTell(f'{error.filename}: {error.strerror}; run it as '
                         'root.') from error
    except configparser.Error as error:
        yield f'rootwrap cannot read its files ({error}): correct {config}.'
    except wrapper.NoFilterMatched:
        yield (f'rootwrap does not let the privileged helper start '
               f'({" ".join(command)}): run "cinder-dmclone install-files", '
               f'and set filters_path in {config} to its directory.')
    except wrapper.FilterMatchNotExecutable:
        yield (f'rootwrap does not find {command[0]}: add '
               f'{os.path.dirname(sys.argv[0])} to exec_dirs in {config}.')


def _restorers() -> typing.Iterator[str]:
    if not os.path.exists('/run/systemd/system') or (
            not shutil.which('systemctl')):
        return
    for unit in _RESTORERS:
        done = subprocess.run(['systemctl', 'is-enabled', unit], text=True,
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
        if done.stdout.strip() == 'enabled':
            yield (f'{unit} takes all exports away whenever it is restarted. '
                   'If nobody else has targets on this node: systemctl mask '
                   f'{unit}')
