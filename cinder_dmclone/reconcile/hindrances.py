# SPDX-License-Identifier: Apache-2.0
"""What is in the way of LVs, said when it begins and ends."""

from __future__ import annotations

import typing

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.stack.state import Stack

LOG = logging.getLogger(__name__)


class Hindrances:
    """One line for each, however often the step is tried in between."""

    def __init__(self) -> None:
        self._said: dict[LvUuid, str] = {}

    def failed(self, lv: LvUuid, error: exceptions.DMCloneException) -> None:
        """A step could not be taken; it is tried again later."""
        self.met(lv, f'{error.msg} Trying again until it works.')

    def met(self, lv: LvUuid, what: str) -> None:
        """There is something that the next step has to wait for."""
        if self._said.get(lv) != what:
            self._said[lv] = what
            LOG.warning('LV %(lv)s: %(what)s', {'lv': lv, 'what': what})

    def over(self, lv: LvUuid) -> None:
        """There is nothing any more."""
        if self._said.pop(lv, None):
            LOG.info('LV %(lv)s: works again.', {'lv': lv})


class MissingDisks(Hindrances):
    """The same of disks that LVM misses, whatever the next step is."""

    def look(self, stacks: typing.Mapping[LvUuid, Stack]) -> None:
        """Tell of all that a node has."""
        for lv in self._said.keys() - stacks:
            del self._said[lv]
        for lv, stack in stacks.items():
            if stack.missing_disk:
                self.met(lv, f'{stack.missing_disk}. What is on it cannot be '
                             'read; "pvs" says which disk it is.')
            else:
                self.over(lv)
