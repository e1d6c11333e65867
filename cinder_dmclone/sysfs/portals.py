# SPDX-License-Identifier: Apache-2.0
"""Where the kernel's iSCSI target (LIO) listens, read from configfs.

Reads only, as any user.
"""

from __future__ import annotations

import pathlib

CONFIGFS = pathlib.Path('/sys/kernel/config/target')


def listens(portal: str) -> bool:
    """Whether a target, whoever's, has this portal ('ip:port').

    ``lio_target_call_addnptotpg`` in iscsi_target_configfs.c names it so.
    """
    return any((tpg / 'np' / portal).is_dir()
               for tpg in CONFIGFS.glob('iscsi/*/tpgt_*'))
