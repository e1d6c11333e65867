# SPDX-License-Identifier: Apache-2.0
"""Commands about the backends of this node, as cinder.conf has them."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import typing

from cinder import coordination
from cinder import objects
from cinder import utils
from cinder import version
from cinder.volume import configuration
from cinder.volume import driver as cinder_driver
from oslo_config import cfg
from oslo_log import log as logging
from oslo_messaging import opts as messaging_opts
from oslo_privsep import priv_context
from tooz import coordination as tooz

from cinder_dmclone.cli import adopt
from cinder_dmclone.cli import check
from cinder_dmclone.cli import decisions
from cinder_dmclone.cli import drain
from cinder_dmclone.cli.errors import fail
from cinder_dmclone.cli import repair_group
from cinder_dmclone.cli import show
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone import locks
from cinder_dmclone import opts
from cinder_dmclone import preflight
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
_WITH_DATABASE = frozenset(['adopt', 'drain', 'list', 'status',
                            *decisions.COMMANDS])


def configured(backends: typing.Collection[str]
               ) -> typing.Iterator[tuple[typing.Any, NodeName]]:
    """The sections of this node's backends that use this driver.

    :param backends: sections to take; all of them if empty
    """
    opts.register()
    # The driver's time limits come from rpc_response_timeout, which a
    # service has from its first client.
    CONF.register_opts(dict(messaging_opts.list_opts())[None])
    for name in backends or CONF.enabled_backends or ():
        config = configuration.Configuration(
            [*SERVICE_OPTS, *cinder_driver.volume_opts,
             *cinder_driver.iser_opts, *opts.all_opts], config_group=name)
        driver = config.safe_get('volume_driver') or ''
        if driver.startswith(preflight.DRIVER):
            here = config.safe_get('backend_host') or CONF.host
            yield config, NodeName(f'{here}@{name}')


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands; returns its exit status."""
    command = arguments.command
    logging.register_options(CONF)
    logging.set_defaults(default_log_levels=[
        *logging.get_default_log_levels(), 'oslo.privsep.daemon=WARN'])
    words = [word for name in arguments.config_file or ()
             for word in ('--config-file', name)]
    try:
        CONF(words, project='cinder', version=version.version_string())
    except cfg.Error as error:
        return fail(str(error))
    # What is said on the other is for whoever has called this. The logs of
    # cinder-volume are its user's: one that root made could not be written.
    for option in 'log_config_append', 'log_dir', 'log_file':
        CONF.set_override(option, None)
    CONF.set_override('use_stderr', True)
    logging.setup(CONF, 'cinder')
    objects.register_all()
    priv_context.init(root_helper=shlex.split(utils.get_root_helper()))
    found = list(configured(arguments.backend or ()))
    if not found:
        return fail('no backend in cinder.conf uses this driver', 1)
    if command in ('check', 'metrics', 'repair-group'):
        hosts = [wiring.make_host(config, node, key=b'')
                 for config, node in found]
        if command == 'check':
            return check.run(hosts, SERVICE_OPTS)
        if command == 'repair-group':
            _be_the_owner()
            return repair_group.run(arguments.of, hosts, arguments.yes)
        # Only this one has to load the library.
        from cinder_dmclone.cli import metrics
        return metrics.run(hosts, arguments.file)
    try:
        worlds = [wiring.make_world(config, node) for config, node in found]
    except OSError as error:
        return fail(f'{error.filename}: {error.strerror}; run it as root or '
                    'as the user of cinder-volume')
    if command in _WITH_DATABASE:
        # Whoever looks at a screen is told at once that it is away.
        CONF.set_default('max_retries', 1, 'database')
        CONF.set_default('retry_interval', 1, 'database')
        if command in decisions.COMMANDS:
            return decisions.run(arguments, worlds)
        if command == 'drain':
            return drain.run(arguments, worlds)
        if command != 'adopt':
            return show.run(command, worlds, arguments.json)
    try:
        with _locks():
            if command == 'adopt':
                return adopt.run(arguments.of, worlds, arguments.yes)
            if command == 'activate':
                return max(_try(_activate, world) for world in worlds)
            if arguments.unused:
                return max(_try(_put_away_unused, world) for world in worlds)
            return _put_away(worlds)
    except exceptions.ServiceRuns as error:
        return fail(f'{error.msg} Nothing was changed.', 1)
    except tooz.ToozError as error:
        return fail(f'nothing was {_DONE[command]}: the locks of '
                    'cinder-volume cannot be had ([coordination] '
                    f'backend_url): {error}', 1)


@contextlib.contextmanager
def _locks() -> typing.Iterator[None]:
    """The locks that cinder-volume takes, as its own user makes them."""
    _be_the_owner()
    coordination.COORDINATOR.start()
    try:
        yield
    finally:
        coordination.COORDINATOR.stop()


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
