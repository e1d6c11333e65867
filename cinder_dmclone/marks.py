# SPDX-License-Identifier: Apache-2.0
"""What a port says of its own calls."""

from __future__ import annotations

import typing

_Function = typing.TypeVar('_Function', bound=typing.Callable[..., typing.Any])


def reads(function: _Function) -> _Function:
    """Mark a call that leaves nothing behind which anybody could find.

    A process that dies before or after it is as good as one that dies before
    the next call. Tests kill at all others.
    """
    setattr(function, 'reads', True)
    return function
