# SPDX-License-Identifier: Apache-2.0
"""The privileged helper, without which nothing is known of disks and kernel.

A command starts it before anything else: what fails later is then about one
backend, or one volume.
"""

from __future__ import annotations

from oslo_privsep import daemon

from cinder_dmclone import privileged

_SOCKET = '/tmp/check/privsep.sock'


class NotStarted(Exception):
    """Why it does not start, in one line."""


def command() -> list[str]:
    """The words by which it is started."""
    return privileged.context.helper_command(_SOCKET)


def start() -> None:
    """Start it.

    :raises NotStarted: if that fails
    """
    try:
        privileged.ready()
    except (daemon.FailedToDropPrivileges, OSError) as error:
        raise NotStarted(
            f'the privileged helper does not start ({" ".join(command()[:4])}:'
            f' {error}): run this as root, or as the user of cinder-volume, '
            'whom sudo has to let run that.') from error
