# SPDX-License-Identifier: Apache-2.0
"""configfs, where the kernel keeps its iSCSI targets, as root."""

from __future__ import annotations

import pathlib

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import process


def mount(target: pathlib.Path) -> None:
    """Mount configfs, unless somebody has: systemd does it, but later.

    A container that may not mount it has to be given the host's.

    :param target: what LIO has there once it is loaded
    :raises TargetUnusable: if that does not appear
    """
    if target.is_dir():
        return
    failure = ''
    try:
        process.run(['mount', '-t', 'configfs', 'configfs',
                     str(target.parent)], timeout=10)
    except exceptions.CommandFailed as error:
        # Perhaps because systemd was faster.
        failure = f' ({error.msg})'
    if not target.is_dir():
        raise exceptions.TargetUnusable(
            reason=f'{target} does not exist{failure}: in a container '
            f"{target.parent} has to be the host's, bound there.")
