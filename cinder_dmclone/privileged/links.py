# SPDX-License-Identifier: Apache-2.0
"""Links to our devices that their users may replace, as root.

os-brick makes the path that it is given for an encrypted volume lead to the
decrypted device instead (``ln --symbolic --force`` in
``os_brick/encryptors/luks.py``), and leaves it so. Under the device's own name
whoever uses it next would follow.
"""

from __future__ import annotations

import pathlib

FOLDER = pathlib.Path('/run/cinder-dmclone')


def make(name: str) -> str:
    """Make, or make anew, the link to a mapped device; returns its path."""
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    draft, link = FOLDER / f'.{name}', FOLDER / name
    draft.unlink(missing_ok=True)
    draft.symlink_to(f'/dev/mapper/{name}')
    draft.rename(link)
    return str(link)


def drop(name: str) -> None:
    """Remove the link of a device; none is fine."""
    (FOLDER / name).unlink(missing_ok=True)
