# SPDX-License-Identifier: Apache-2.0
"""What to do about a copy that is not (yet) the volume."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone import names
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile import old_copy
from cinder_dmclone.reconcile.observed import Facts


def decide(facts: Facts, row: rows.Row) -> Decision:
    """A copy that is not (yet) the volume."""
    if row.offer == facts.here:
        return _offered(facts, row)
    if row.lv == facts.stack.lv:
        return Decision(Verdict.REPORT, f'the row says {row.owner}, which '
                        'differs from this LV by the name of the node')
    if loans.elsewhere(facts, row):
        return Decision(Action.DISCARD, 'the volume is of another backend')
    if facts.foreign(row) or not row.node:
        return Decision(Verdict.WAIT, 'Cinder moves the volume')
    if row.node == facts.node:
        # This is the home, and its row does not name this copy.
        return _withdrawn(facts, row)
    agreed = facts.agreed.get(row.node)
    if agreed is None:
        return Decision(Question.AGREE, ask=(row.owner,))
    if agreed:
        return _withdrawn(facts, row)
    return Decision(Verdict.WAIT, f'{row.node} still works on this copy')


def _withdrawn(facts: Facts, row: rows.Row) -> Decision:
    """A copy that is not offered any more.

    A commit raises the generation to that of its copy, and a recovery by one
    more: one of an earlier generation may have been the volume, which a node
    that was then lost had not written down. Nobody writes another one.
    """
    if not facts.written:
        return Decision(Action.DISCARD, 'its offer was withdrawn')
    writers = facts.stack.of_kind(*names.WRITERS)
    if writers:
        stale = old_copy.stale_writers(facts.stack, row, writers)
        if stale.step is not Verdict.WAIT:
            return stale
    return Decision(
        Verdict.REPORT, 'it was written, or may have been, when it was the '
        f'volume, of which {row.owner} was made again; it is kept without a '
        'front')


def _offered(facts: Facts, row: rows.Row) -> Decision:
    """A copy that is being prepared, or gated for a live migration.

    Nova completes the attachment of the destination before the server moves
    (``ComputeManager.pre_live_migration``), so a write before that is not
    the server's: a luksFormat on a disk that could not be read, for example.
    """
    stack = facts.stack
    if row.node == facts.node:
        # Whoever makes a copy of something here holds the lock meanwhile.
        return Decision(Action.WITHDRAW, 'nobody works on it')
    if stack.write_waits:
        attachment = row.migration
        if attachment is None:
            # Its home withdraws it. Or it was read between the commit there
            # and the end of the attachment that led to it: in a transaction
            # (READ COMMITTED) a row is older than its attachments.
            return Decision(Verdict.WAIT, 'no server is migrated')
        if attachment.attached:
            return Decision(Question.CLAIM, 'a server writes',
                            ask=(row.owner,))
        return Decision(Action.REJECT, 'the attachment is not complete')
    if stack.alarmed:
        return Decision(Action.REARM, 'nothing waits any more')
    away = (decision.without_path(stack, facts.lender)
            if stack.of_kind(names.Kind.HOLD) and stack.assembled else None)
    return away or Decision(Verdict.WAIT, 'the copy is being prepared')
