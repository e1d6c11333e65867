# SPDX-License-Identifier: Apache-2.0
"""What a guest said on its console, for a test that waits for something."""
from __future__ import annotations

from lab.guest import verify

# The letters that change what the guest does, as keys for `virsh send-key`
# (KEY_*) and the QEMU monitor's sendkey; the serial port takes them too.
IDLE, NORMAL, HEAVY, STOP = 'i', 'n', 'h', 'q'


class Console(verify.Record):
    """A record that can be asked; see guest.h for the lines.

    A disk is known by its id; ``disk('vda')`` tells it.
    """

    def of(self, kind: str, disk: int | None = None) -> list[list[str]]:
        """What follows kind and id in the lines of a kind.

        :param disk: only lines about that disk; modes (M) have no disk
        """
        return [words[1 if kind == 'M' else 2:] for words in self.lines
                if words[0] == kind
                and (disk is None or int(words[1], 16) == disk)]

    def disk(self, name: str) -> int:
        """Id of the disk last used under a name; KeyError."""
        ids = {words[2]: int(words[1], 16) for words in self.lines
               if words[0] == 'B'}
        return ids[name]

    def mode(self) -> str:
        """What the guest was last told to do; empty if that is not known."""
        modes = self.of('M')
        return modes[-1][0] if modes else ''

    def last(self, disk: int) -> int:
        """The last sequence number known to be flushed; 0: none."""
        return max(self.flushed.get(disk, {}).values(), default=0)

    def slowest(self, disk: int) -> int:
        """The longest that a write (with flush) took, in ms.

        It is measured by the guest's clock, which stands still while the guest
        does.
        """
        return max((int(words[0]) for words in self.of('S', disk)), default=0)
