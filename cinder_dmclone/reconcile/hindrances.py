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

    def met(self, lv: LvUuid, error: exceptions.DMCloneException) -> None:
        """A step could not be taken; it is tried again later."""
        if self._said.get(lv) != error.msg:
            self._said[lv] = error.msg
            LOG.warning('LV %(lv)s: %(error)s Trying again until it works.',
                        {'lv': lv, 'error': error.msg})

    def over(self, lv: LvUuid) -> None:
        """All steps could be taken."""
        if self._said.pop(lv, None):
            LOG.info('LV %(lv)s: works again.', {'lv': lv})
