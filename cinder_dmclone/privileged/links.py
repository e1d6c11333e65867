# SPDX-License-Identifier: Apache-2.0
"""Links to our devices that their users may replace, as root.

os-brick makes the path that it is given for an encrypted volume lead to the
decrypted device instead (``ln --symbolic --force`` in
``os_brick/encryptors/luks.py``), and leaves it so. Under the device's own name
whoever uses it next would follow. Nor may the link be called like a mapped
device: os-brick would take that for the decrypted one (``old_dev_name`` there;
``cryptsetup status`` succeeds for every mapped device).
"""

from __future__ import annotations

import pathlib

from cinder_dmclone import names

FOLDER = pathlib.Path('/run/cinder-dmclone')


def make(name: str) -> str:
    """Make, or make anew, the link to a mapped device; returns its path."""
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    link = _link(name)
    draft = link.with_name(f'.{link.name}')
    draft.unlink(missing_ok=True)
    draft.symlink_to(f'/dev/mapper/{name}')
    draft.rename(link)
    return str(link)


def drop(name: str) -> None:
    """Remove the link of a device; none is fine."""
    _link(name).unlink(missing_ok=True)


def _link(name: str) -> pathlib.Path:
    return FOLDER / name.removeprefix(names.DM_PREFIX)
