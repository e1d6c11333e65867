# SPDX-License-Identifier: Apache-2.0
"""Which release this is."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    """That of the installed package."""
    try:
        return metadata.version('cinder-dmclone')
    except metadata.PackageNotFoundError:
        return 'not installed'
