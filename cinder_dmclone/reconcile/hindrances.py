# SPDX-License-Identifier: Apache-2.0
"""What keeps LVs from their next step, said when it begins and ends."""

from __future__ import annotations

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid

LOG = logging.getLogger(__name__)


class Hindrances:
    """One line for each, however often the step is tried in between."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

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
