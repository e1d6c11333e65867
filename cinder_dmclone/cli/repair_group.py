# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone repair-group``: a volume group that LVM does not find."""

from __future__ import annotations

import contextlib
import typing

from cinder_dmclone.cli.errors import fail
from cinder_dmclone.cli.errors import UNCHANGED
from cinder_dmclone import exceptions
from cinder_dmclone.host import descriptions
from cinder_dmclone.host import lvm
from cinder_dmclone import locks
from cinder_dmclone.ports import Host


def run(name: str, hosts: typing.Sequence[Host], yes: bool) -> int:
    """Show what would hold again, and with ``--yes`` make it hold.

    :param name: of the group
    :returns: 0, 1 if it cannot be repaired, 2 if that could not be told
    """
    groups = [(host.settings.node, group) for host in hosts
              for group in host.groups if group.name == name]
    if not groups:
        return fail(f'no backend of this node has a volume group {name}. '
                    f'{UNCHANGED}')
    with contextlib.ExitStack() as stack:
        for node in sorted({node for node, _ in groups}):
            try:
                stack.enter_context(locks.Presence(node).absent())
            except exceptions.ServiceRuns as error:
                return fail(f'{error.msg} {UNCHANGED}', 1)
        return _repair(groups[0][1], yes)


def _repair(group: lvm.VolumeGroup, yes: bool) -> int:
    if _is_found(group):
        print(f'LVM finds volume group {group.name}. {UNCHANGED}')
        return 0
    try:
        found = descriptions.find(group.name)
    except exceptions.GroupUnrepaired as error:
        return fail(error.msg, 1)
    except exceptions.DMCloneException as error:
        return fail(f'{error.msg} {UNCHANGED}')
    _tell(found)
    if not yes:
        print(f'{UNCHANGED} With --yes it is done.')
        return 0
    try:
        descriptions.restore(found)
    except exceptions.DMCloneException as error:
        return fail(f'{error.msg} Run the command again.')
    if not _is_found(group):
        return fail(f'LVM still does not find volume group {group.name}')
    print('Done.')
    return 0


def _is_found(group: lvm.VolumeGroup) -> bool:
    try:
        group.report(patient=True)
    except (exceptions.GroupLost, exceptions.CommandFailed):
        return False
    return True


def _tell(found: descriptions.Description) -> None:
    torn = 'the last one' if found.torn is None else f'number {found.torn}'
    made = f', written {found.made}' if found.made else ''
    print(f'Volume group {found.group} becomes what LVM wrote about it on '
          f'{" and ".join(found.disks)} as number {found.number}{made}, with '
          f'{len(found.lvs)} logical volumes; {torn} is torn.')
    lost = 1 if found.torn is None else found.torn - found.number
    print(f'gives up: {lost} change{"s" * (lost > 1)} of the group, which '
          'was being written')
