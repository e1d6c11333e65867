# SPDX-License-Identifier: Apache-2.0
"""Bring a node's volumes up from what its LVs say, without a control plane.

Tags are only ever more cautious than the row: an LV that says it is the
volume and was never lent since is the volume. Its front is brought up;
whether a server still wants it is found out when the database is there.
"""

from __future__ import annotations

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state

LOG = logging.getLogger(__name__)


def activate_volumes(host: Host) -> None:
    """Let LVM make the devices of its volumes: nothing is built on them."""
    for group in (host.group, host.meta_group):
        group.activate()


def activate(host: Host) -> dict[str, str]:
    """Exports first, then stacks and fronts, then logins.

    A volume that cannot be brought up does not keep others from it.

    :returns: what could not be brought up and why, by LV uuid
    """
    activate_volumes(host)
    problems: dict[str, str] = {}
    units = inspect.collect(host)
    if any(unit.tags.lent for unit in units.values()):
        try:
            host.exporter.load()
        except exceptions.TargetUnusable as error:
            # Each loan fails with a reason of its own; the rest comes up.
            LOG.error('Nothing can be lent: %s', error.msg)
    for lv, unit in units.items():
        try:
            _activate(host, unit)
        except exceptions.DMCloneException as error:
            LOG.error('LV %(lv)s: %(error)s', {'lv': lv, 'error': error.msg})
            problems[lv] = error.msg
    _log_in(host)
    return problems


def _log_in(host: Host) -> None:
    """Let servers read what is not here yet.

    Without that they only wait longer: cinder-volume tries again. A lender
    that is down, or boots itself, is tried once.
    """
    silent: set[str] = set()
    for lv, unit in inspect.collect(host).items():
        source = unit.tags.source
        if (not source or unit.has_path or source.portal in silent
                or not unit.of_kind(names.Kind.FRONT)):
            continue
        try:
            clones.reconnect(host, unit)
        except exceptions.DMCloneException as error:
            LOG.warning('LV %(lv)s: %(error)s',
                        {'lv': lv, 'error': error.msg})
            silent.add(source.portal)


def _activate(host: Host, unit: state.Unit) -> None:
    if unit.unreadable:
        raise exceptions.BadRecord(record=unit.lv, reason=unit.unreadable)
    if not unit.tags.own or unit.tags.copy:
        return
    if unit.tags.source and not unit.assembled:
        unit = clones.assemble(host, unit)
    for tag in unit.tags.lent:
        exports.export_loan(host, unit, tag)
    if unit.tags.lent:
        return
    consumers.consume(host, unit, names.front(host.settings.host, unit.lv))
