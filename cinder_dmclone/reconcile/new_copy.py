# SPDX-License-Identifier: Apache-2.0
"""What to do about a copy that is not (yet) the volume."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Step
from cinder_dmclone.reconcile.observed import Facts


def decide(facts: Facts, row: rows.Row) -> Decision:
    """A copy that is not (yet) the volume."""
    if row.offer == facts.here:
        return _offered(facts, row)
    agreed = facts.agreed.get(row.node)
    if agreed is None:
        return Decision(Step.ASK_AGREE, ask=row.owner)
    if agreed:
        return Decision(Step.DISCARD, 'its offer was withdrawn')
    return Decision(Step.WAIT, f'{row.node} still works on this copy')


def _offered(facts: Facts, row: rows.Row) -> Decision:
    """A copy that is being prepared, or gated for a live migration.

    Nova completes the attachment of the destination before the server moves
    (``ComputeManager.pre_live_migration``), so a write before that is not
    the server's: a luksFormat on a disk that could not be read, for example.
    """
    unit = facts.unit
    if unit.write_waits:
        attachment = row.migration
        if attachment and attachment.status == 'attached':
            return Decision(Step.CLAIM, 'a server writes', ask=row.owner)
        return Decision(Step.REJECT, 'the attachment is not complete')
    if unit.alarmed:
        return Decision(Step.REARM, 'nothing waits any more')
    if unit.of_kind(names.Kind.HOLD) and unit.assembled and not unit.has_path:
        return Decision(Step.RECONNECT, 'the path to the lender is lost')
    return Decision(Step.WAIT, 'the copy is being prepared')
