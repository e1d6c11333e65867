# SPDX-License-Identifier: Apache-2.0
"""What is deleted is overwritten as Cinder's ``volume_clear`` says.

Not by Cinder's own ``clear_volume``: its ``dd`` sends a TiB of zeros over the
bus, where the kernel can tell most disks to write zeros themselves. It starts
three programs through rootwrap, and writes on when the service has ended.
"""

from __future__ import annotations

import dataclasses
import typing

from cinder import exception
from oslo_utils import units as oslo_units

from cinder_dmclone.privileged import block
from cinder_dmclone.units import Bytes

# Bytes that are overwritten by one call: who is stopped ends after these.
PORTION = 256 * oslo_units.Mi


def is_priority(option: str) -> bool:
    """Whether ``ionice`` can use an option; it can do without."""
    return not option or bool(block.PRIORITY.fullmatch(option))


@dataclasses.dataclass(frozen=True)
class Eraser:
    """Overwrites devices.

    :ivar wanted: whether anything is
    :ivar most: bytes of each, from the first on; all if 0
    :ivar priority: an option of ``ionice``, or nothing
    """

    wanted: bool
    most: Bytes
    priority: str

    @classmethod
    def of(cls, config: typing.Any) -> Eraser:
        """As a backend's section has it.

        An option that ``ionice`` could not use keeps nothing from coming up
        at boot; ``preflight`` says it when the service starts.
        """
        return cls(config.volume_clear != 'none',
                   Bytes(config.volume_clear_size * oslo_units.Mi),
                   config.volume_clear_ionice or '')

    def __call__(self, path: str, size: Bytes,
                 goes_on: typing.Callable[[], bool]) -> None:
        """Overwrite a device of so many bytes, durably.

        :param goes_on: asked before each portion; no more follow if it denies

        :raises InvalidConfigurationValue: if ``ionice`` cannot use its option
        :raises CommandFailed: also if somebody has it open for himself
        :raises CommandTimeout: if the disk does not answer
        """
        if not self.wanted:
            return
        if not is_priority(self.priority):
            raise exception.InvalidConfigurationValue(
                option='volume_clear_ionice', value=self.priority)
        end = min(size, self.most or size)
        for first in range(0, end, PORTION):
            if not goes_on():
                break
            block.zero(path, first, min(PORTION, end - first), self.priority)
        # Else a power cut may bring back what was there, when LVM has given
        # the blocks to somebody else.
        block.flush((path,))
