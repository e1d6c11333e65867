# SPDX-License-Identifier: Apache-2.0
"""Whether the host's own LVM keeps off the driver's devices.

The driver's commands do, whatever is configured; those of an operator, and of
systemd at boot, go by lvm.conf. That has no folder for files of others, and
only the operator knows all disks of the node (lvm.conf(5)).
"""

from __future__ import annotations

import re
import typing

from cinder_dmclone import names
from cinder_dmclone.privileged import lvm

# A front and an imported disk, by all names that they have.
_OURS = ((f'/dev/mapper/{names.DM_PREFIX}front-0', '/dev/dm-999'),
         ('/dev/sdzzz',))


def advice() -> typing.Iterator[str]:
    """The line that is missing in lvm.conf, if it is; with all disks there."""
    scan = lvm.Scan(*lvm.host_scan())
    if scan.devices_file or not any(reads(scan.patterns, device)
                                    for device in _OURS):
        return
    if not all(disk.startswith('/') for disk in scan.disks):
        # One that is missing has no name, and would be left out for ever.
        return
    disks = ', '.join(f'"a|^{disk}$|"' for disk in scan.disks)
    yield ("LVM on this host reads the driver's devices too, and a command "
           'of an operator may wait for a lender that is away. In the '
           'section devices of /etc/lvm/lvm.conf: '
           f'global_filter = [ {disks}, "r|.*|" ]')


def reads(patterns: typing.Iterable[str],
          device: typing.Iterable[str]) -> bool:
    """Whether LVM would read a device.

    The first pattern that matches a name decides about the name; a name that
    is accepted is enough, and what nothing is said of is accepted
    (``_accept_p`` in lib/filters/filter-regex.c).

    :param patterns: "a|regex|" or "r|regex|", with any delimiter
    """
    found = {_first(patterns, name) for name in device}
    return 'a' in found or 'r' not in found


def _first(patterns: typing.Iterable[str], name: str) -> str:
    return next((pattern[0] for pattern in patterns
                 if re.search(pattern[2:-1], name)), '')
