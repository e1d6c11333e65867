# SPDX-License-Identifier: Apache-2.0
"""How a command says that something was not done."""

from __future__ import annotations

import sys

UNCHANGED = 'Nothing was changed.'


def fail(why: str, code: int = 2) -> int:
    """Say in one line why nothing was done; returns the exit status."""
    print(f'cinder-dmclone: {" ".join(why.split())}', file=sys.stderr)
    return code
