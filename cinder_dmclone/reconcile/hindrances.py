# SPDX-License-Identifier: Apache-2.0
"""What is in the way of LVs, said when it begins and ends."""

from __future__ import annotations

import typing

from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.stack.state import Stack

LOG = logging.getLogger(__name__)

# What needed a look needs none any more. A step that failed says nothing.
_EXPLAINED = (Verdict.REST, Verdict.WAIT, Verdict.WATCH)


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


class Told(Hindrances):
    """The same of decisions, and what only an operator can decide.

    :ivar reported: that, by LV
    """

    def __init__(self, node: NodeName) -> None:
        super().__init__()
        self._node = node
        self.reported: dict[LvUuid, str] = {}

    def tell(self, lv: LvUuid, decision: Decision) -> None:
        """Tell what an LV waits for, if that is new."""
        if decision.hindrance:
            self.met(lv, decision.hindrance)
        elif decision.step is not Verdict.RETRY:
            self.over(lv)
        if decision.step in _EXPLAINED:
            self.reported.pop(lv, None)
        elif decision.step is Verdict.REPORT and (
                self.reported.get(lv) != decision.why):
            self.reported[lv] = decision.why
            LOG.error('LV %(lv)s on %(node)s needs a look: %(why)s',
                      {'lv': lv, 'node': self._node, 'why': decision.why})

    def forget_others(self, lvs: typing.Container[LvUuid]) -> None:
        """These are all that there are."""
        for lv in list(self.reported):
            if lv not in lvs:
                self.reported.pop(lv, None)


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
