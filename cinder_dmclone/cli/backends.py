# SPDX-License-Identifier: Apache-2.0
"""Commands about the backends of this node, as cinder.conf has them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shlex
import sys
import typing

from cinder import objects
from cinder import utils
from cinder import version
from cinder.volume import configuration
from cinder.volume import driver as cinder_driver
from oslo_config import cfg
from oslo_log import log as logging
from oslo_messaging import opts as messaging_opts
from oslo_privsep import priv_context

from cinder_dmclone.cli import adopt
from cinder_dmclone.cli import check
from cinder_dmclone.cli import decisions
from cinder_dmclone.cli import drain
from cinder_dmclone.cli.errors import fail
from cinder_dmclone.cli.errors import UNCHANGED
from cinder_dmclone.cli import repair_group
from cinder_dmclone.cli import show
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone import locks
from cinder_dmclone import opts
from cinder_dmclone.ports import Host
from cinder_dmclone import preflight
from cinder_dmclone import privileged
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import deactivation
from cinder_dmclone import wiring
from cinder_dmclone.world import World

CONF = cfg.CONF

# The options of cinder-volume itself that say which backends there are; its
# modules are not loaded here.
SERVICE_OPTS = (cfg.StrOpt('volume_driver'), cfg.StrOpt('backend_host'))

# Those that take the locks of cinder-volume.
_DONE = {'activate': 'activated', 'adopt': 'adopted',
         'deactivate': 'deactivated'}
# Those that ask the database, and nodes, but neither disks nor the kernel. The
# others start the helper before anything else: what fails later is then about
# one backend, or one volume.
_WITHOUT_HELPER = frozenset(['give-up', 'list', 'move-snapshot', 'recover'])
# Those about all backends, and their status if one cannot be looked at.
_LEFT_OUT = {'activate': 1, 'deactivate': 1, 'drain': 2, 'metrics': 2}

_Made = typing.TypeVar('_Made')


class _NoBackend(Exception):
    """No section of this node's uses this driver."""


def _each(sections: typing.Collection[str],
          make: typing.Callable[[typing.Any, NodeName], _Made]
          ) -> tuple[list[_Made], dict[str, str]]:
    """This node's backends that use this driver.

    One whose options have wrong values does not hide the others.

    :param sections: those to take; all of them if empty
    :param make: of the options of one, and its name
    :returns: what was made, and why it could not be, by the backend
    """
    opts.register()
    # The driver's time limits come from rpc_response_timeout, which a
    # service has from its first client.
    CONF.register_opts(dict(messaging_opts.list_opts())[None])
    made: list[_Made] = []
    unread: dict[str, str] = {}
    for name in sections or CONF.enabled_backends or ():
        node = NodeName(name)
        try:
            config = configuration.Configuration(
                [*SERVICE_OPTS, *cinder_driver.volume_opts,
                 *cinder_driver.iser_opts, *opts.all_opts], config_group=name)
            driver = config.safe_get('volume_driver') or ''
            if not driver.startswith(preflight.DRIVER):
                continue
            here = config.safe_get('backend_host') or CONF.host
            node = NodeName(f'{here}@{name}')
            made.append(make(config, node))
        except cfg.Error as error:
            unread[node] = f'{error}; correct it in cinder.conf'
    if not made and not unread:
        raise _NoBackend
    return made, unread


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands; returns its exit status."""
    try:
        _configure(arguments.config_file or ())
        return _run(arguments)
    except (cfg.Error, exceptions.DMCloneException) as error:
        return fail(str(error))
    except _NoBackend:
        return fail('no backend in cinder.conf uses this driver', 1)
    except OSError as error:
        # Files of root the helper opens, in whose errors they are not named.
        if error.filename is None:
            raise
        return fail(f'{error.filename}: {error.strerror}; run it as root or '
                    'as the user of cinder-volume')


def _configure(files: typing.Iterable[str]) -> None:
    """Read ``cinder.conf`` as cinder-volume does."""
    logging.register_options(CONF)
    logging.set_defaults(default_log_levels=[
        *logging.get_default_log_levels(), 'oslo.privsep.daemon=WARN',
        # That a call has failed is said by who has made it.
        'oslo_privsep.comm=ERROR'])
    words = [word for name in files for word in ('--config-file', name)]
    CONF(words, project='cinder', version=version.version_string())
    # What is said on the other is for whoever has called this. The logs of
    # cinder-volume are its user's: one that root made could not be written.
    for option in 'log_config_append', 'log_dir', 'log_file':
        CONF.set_override(option, None)
    CONF.set_override('use_stderr', True)
    # Whoever looks at a screen is told at once that it is away.
    CONF.set_default('max_retries', 1, 'database')
    CONF.set_default('retry_interval', 1, 'database')
    logging.setup(CONF, 'cinder')
    objects.register_all()
    priv_context.init(root_helper=shlex.split(utils.get_root_helper()))


def _run(arguments: argparse.Namespace) -> int:
    command, sections = arguments.command, arguments.backend or ()
    if command in ('check', 'metrics', 'repair-group'):
        hosts, unread = _each(sections, functools.partial(
            wiring.make_host, key=b''))
        if command == 'check':
            return check.run(hosts, SERVICE_OPTS, unread)
        _tell(unread.items())
        privileged.ready()
        code = _with_hosts(arguments, hosts)
        return max(code, _LEFT_OUT.get(command, 0)) if unread else code
    worlds, unread = _each(sections, wiring.make_world)
    _tell(unread.items())
    if command not in _WITHOUT_HELPER and worlds:
        privileged.ready()
    if command in ('list', 'status'):
        return show.run(command, worlds, arguments.json, unread)
    if not worlds:
        return 2
    code = _with_worlds(arguments, worlds)
    return max(code, _LEFT_OUT.get(command, 0)) if unread else code


def _with_hosts(arguments: argparse.Namespace,
                hosts: typing.Sequence[Host]) -> int:
    """Run a command that needs nothing but disks and kernel."""
    if arguments.command == 'repair-group':
        _be_the_owner()
        return repair_group.run(arguments.of, hosts, arguments.yes)
    # Only this one has to load the library.
    from cinder_dmclone.cli import metrics
    return metrics.run(hosts, arguments.file)


def _with_worlds(arguments: argparse.Namespace,
                 worlds: typing.Sequence[World]) -> int:
    command = arguments.command
    if command in decisions.COMMANDS:
        return decisions.run(arguments, worlds)
    if command == 'drain':
        return drain.run(arguments, worlds)
    try:
        # Locks are made as cinder-volume's own user makes them.
        _be_the_owner()
        locks.ready()
    except OSError as error:
        return fail(f'nothing was {_DONE[command]}: the locks of '
                    f'cinder-volume cannot be had in {CONF.state_path}: '
                    f'{error}', 1)
    try:
        if command == 'adopt':
            return adopt.run(arguments.of, worlds, arguments.yes)
        if command == 'activate':
            return max(_try(_activate, world) for world in worlds)
        if arguments.unused:
            return max(_try(_put_away_unused, world) for world in worlds)
        return _put_away(worlds)
    except exceptions.ServiceRuns as error:
        return fail(f'{error.msg} {UNCHANGED}', 1)


def _be_the_owner() -> None:
    """Make files as cinder-volume: what root made it could not open."""
    if os.geteuid() == 0:
        owner = os.stat(CONF.state_path)
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)


def _try(run: typing.Callable[[World], int], world: World) -> int:
    """A backend that fails does not keep others from running."""
    try:
        return run(world)
    except Exception as error:
        print(f'{world.settings.node}: {activation.said(error)}',
              file=sys.stderr)
        return 1


def _activate(world: World) -> int:
    return _tell(activation.activate(world).items())


def _put_away(worlds: typing.Sequence[World]) -> int:
    """Deactivate all backends, or none if anything is in use."""
    with contextlib.ExitStack() as stack:
        for world in worlds:
            stack.enter_context(
                locks.Presence(world.settings.node).absent())
        return (max(_try(_refuse, world) for world in worlds)
                or max(_try(_deactivate, world) for world in worlds))


def _put_away_unused(world: World) -> int:
    with locks.Presence(world.settings.node).absent():
        return _deactivate(world)


def _refuse(world: World) -> int:
    lines = deactivation.in_use(world.host)
    for line in lines:
        fail(f'{world.settings.node}: {line}. Nothing was changed.')
    return int(bool(lines))


def _deactivate(world: World) -> int:
    return _tell(deactivation.deactivate(world).items())


def _tell(problems: typing.Iterable[tuple[str, str]]) -> int:
    failed = 0
    for lv, why in problems:
        failed = 1
        print(f'{lv}: {why}', file=sys.stderr)
    return failed
