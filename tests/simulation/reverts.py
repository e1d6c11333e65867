# SPDX-License-Identifier: Apache-2.0
"""A volume goes back to its latest snapshot: wholly, or not at all."""

from __future__ import annotations

import typing

from cinder_dmclone.service import reverts
from tests.simulation import truth as truth_module

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module
    from tests.simulation import control
    from tests.simulation import snaps

Violation = truth_module.Violation


class Revert:
    """What is known of one that was asked for.

    :ivar made: whether the row says so
    """

    def __init__(self, truth: truth_module.Truth,
                 taken: snaps.Snapshot) -> None:
        self.truth = truth
        self.taken = taken
        self.made = False

    def commit(self) -> None:
        """From now on the volume is what the snapshot is."""
        self.made = True
        taken, truth = self.taken, self.truth
        content = taken.content
        if not content and taken.at and not taken.lost:
            # A node it needed was lost when it was made, and no more.
            content = truth.read_copies(taken.at, durable=False)
        if content:
            truth.regions = [truth_module.Region([value], [truth.owner.node])
                             for value in content]
        # What it needs from now on may have gone meanwhile.
        truth.mourn(truth.lost)

    def check_success(self) -> None:
        """The call has returned."""
        taken, truth = self.taken, self.truth
        if taken.at is None or taken.lost or truth.owner in truth.lost:
            return
        found = truth.read_copies(truth.owner, durable=False)
        if taken.content and found != taken.content:
            raise Violation('I15 revert', f'{truth.owner} has {found}, the '
                            f'snapshot {taken.content}')

    def check_failure(self) -> None:
        """The driver has failed, and lets the volume be used."""
        if self.made:
            raise Violation('I15 revert', 'it failed, and was made')


def revert(api: control.Api, truth: truth_module.Truth) -> None:
    """``cinder revert-to-snapshot``, of a volume that nobody uses."""
    row = api.tables.volumes[api.volume]
    taken = api.snapshots[-1] if api.snapshots else None
    if (row['deleted'] or row['status'] != 'available' or taken is None
            or taken.row['status'] != 'available'
            or taken.row['volume_size'] != row['size']):
        raise api.refused(f'revert: the volume is {row["status"]}')
    asked = truth.revert = Revert(truth, taken)
    row['status'], taken.row['status'] = 'reverting', 'restoring'

    def manager(process: cloud_module.Process) -> None:
        try:
            reverts.revert(process.service, api.volume, taken.id)
        except Exception:
            _fail(process, row)
            raise
        process.check_alive()
        asked.check_success()
        if row['status'] == 'reverting':
            row['status'] = 'available'

    def _fail(process: cloud_module.Process,
              row: dict[str, typing.Any]) -> None:
        # A change that is still on its way has the row locked.
        while api.tables.locked:
            api.cloud.scheduler.sleep(1.0)
        if row['status'] == 'available':
            asked.check_failure()
        if process.alive and row['status'] == 'reverting':
            row['status'] = 'error'
    try:
        api.call('revert', manager, once=True)
    finally:
        # The manager does this; where it died, an administrator.
        if taken.row['status'] == 'restoring':
            taken.row['status'] = 'available'
        if row['status'] in ('reverting', 'error'):
            row['status'] = 'available'
