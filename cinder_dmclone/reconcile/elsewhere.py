# SPDX-License-Identifier: Apache-2.0
"""What to do about an LV that is not the volume: a copy, or a lent one."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile import observed
from cinder_dmclone import records
from cinder_dmclone.stack import state

Decision = decision.Decision
Facts = observed.Facts
Step = decision.Step
Unit = state.Unit


def elsewhere(facts: Facts, row: rows.Row) -> Decision:
    """The next step for an LV of a volume that is another LV."""
    unit = facts.unit
    if unit.tags.lent:
        return _lender(facts, row)
    if unit.tags.copy:
        return _copy(facts, row)
    if unit.tags.own:
        return Decision(
            Step.REPORT, f'the LV claims to be the volume, the row says '
            f'{row.owner}; it is kept without a front')
    return Decision(Step.REPORT, f'unknown LV of a volume of {row.owner}')


def _copy(facts: Facts, row: rows.Row) -> Decision:
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


def _lender(facts: Facts, row: rows.Row) -> Decision:
    unit = facts.unit
    writers = unit.of_kind(*names.WRITERS)
    stale = _stale_writers(unit, row, writers) if writers else None
    if stale and stale.step is not Step.WAIT:
        return stale
    if facts.here == row.source:
        return _serve(unit, row.owner)
    for tag in unit.tags.lent:
        # A lender in the middle of a chain is named by no row: what it lent
        # to tells.
        needed = _discharge(facts, row, tag)
        if needed:
            return needed
    return stale or Decision(Step.RELEASE, 'those it was lent to are complete')


def _stale_writers(unit: Unit, row: rows.Row,
                   writers: list[names.DeviceName]) -> Decision:
    held = [name for name in writers if unit.is_held(name)]
    if not held:
        return Decision(Step.CONSUMERS, drop=frozenset(writers))
    open_fronts = [name for name in held if name.kind is names.Kind.FRONT
                   and not unit.fenced(name)]
    if open_fronts:
        return Decision(Step.FENCE, f'{row.owner} is the volume',
                        drop=frozenset(open_fronts))
    if any(name.kind is not names.Kind.FRONT for name in held):
        return Decision(Step.REPORT, f'{held[0]} is open on a copy that is '
                        f'no longer the volume ({row.owner} is)')
    return Decision(Step.WAIT, f'a server that has moved to {row.node} '
                    'still has its device here')


def _discharge(facts: Facts, row: rows.Row,
               tag: records.Lent) -> Decision | None:
    """Why a loan still needs this LV; None if it does not."""
    shown = facts.shown.get(tag.borrower)
    if shown is None:
        return Decision(Step.ASK_SHOW, ask=tag.borrower)
    if shown.group == tag.group and shown.state in ('copy', 'hydrating'):
        return _serve(facts.unit, tag.borrower)
    doubt = _doubt(facts.unit, tag.borrower, tag.generation, tag.group,
                   shown)
    if doubt is None:
        return None
    if tag.borrower == row.owner or shown.state != 'missing':
        return Decision(Step.REPORT, f'{doubt}; this copy is kept')
    # The borrower has passed the volume on and is gone itself: only the
    # volume's owner can prove that nobody needs either.
    owner = facts.shown.get(row.owner)
    if owner is None:
        return Decision(Step.ASK_SHOW, ask=row.owner)
    doubt = _doubt(facts.unit, row.owner, row.generation, None, owner)
    return doubt and Decision(Step.REPORT, f'{doubt}; this copy is kept')


def _doubt(unit: Unit, who: records.Location, generation: int,
           group: str | None, shown: messages.Shown) -> str | None:
    """Why a node's statement does not prove this copy superfluous.

    :param group: the volume group the node had when it borrowed
    """
    if shown.state != 'complete':
        return f'{who} is {shown.state}'
    if shown.generation != generation:
        return (f'{who} is at generation {shown.generation} instead of '
                f'{generation}')
    if group and shown.group != group:
        return f'{who.node} has another volume group than when it borrowed'
    assert unit.data is not None
    if shown.size < unit.data.size:
        return f'{who} is smaller than this copy'
    return None


def _serve(unit: Unit, borrower: records.Location) -> Decision:
    """Lend, and hydrate meanwhile if this LV is itself a copy.

    Reads that wait here would wait inside the iSCSI target and keep its
    other initiators from logging in: they fail while the path is lost, and
    the borrower, where the server is, lets them wait.
    """
    if unit.tags.source and not unit.assembled:
        return Decision(Step.ASSEMBLE)
    missing = unit.missing_loans(borrower)
    if missing:
        return Decision(Step.LEND, lent=missing)
    wait = Decision(Step.WAIT, f'{borrower} hydrates from here')
    if not unit.tags.source:
        left = unit.meta or unit.of_kind(names.Kind.CLONE, names.Kind.SOURCE)
        return Decision(Step.COMPLETE) if left else wait
    finished = decision.finished(unit)
    if finished:
        return finished
    if not unit.has_path:
        if unit.queues:
            return Decision(Step.PAUSE, 'the path to the lender is lost')
        return Decision(Step.RECONNECT, 'the path to the lender is lost')
    return decision.copying(unit)
