# SPDX-License-Identifier: Apache-2.0
"""What to do about an LV that is the volume."""

from __future__ import annotations

from cinder.objects.fields import VolumeStatus

from cinder_dmclone.database import rows
from cinder_dmclone import names
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Question
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Unit

# Statuses in which no service of the control plane works on the volume's
# data without an attachment saying so.
_QUIET = (VolumeStatus.AVAILABLE, VolumeStatus.ERROR, VolumeStatus.IN_USE)


def decide(facts: Facts, row: rows.Row) -> Decision:
    """The next step for the LV of the node that owns the volume."""
    unit = facts.unit
    if unit.data is None:
        return Decision(
            Verdict.REPORT, 'the LV of this volume is gone'
            + (f'; its source {row.source} is kept' if row.source else ''))
    if row.offer and (facts.overdue or not row.migration):
        return Decision(Action.WITHDRAW, f'nobody works on offer {row.offer}')
    if not unit.tags.own and not unit.tags.copy and row.source:
        return Decision(Verdict.REPORT, 'the LV has lost its tags; whether it '
                        'is complete is not known')
    if unit.tags.copy or not unit.tags.own:
        return Decision(Action.ADOPT, 'the row names this LV the volume')
    stale = [tag for tag in unit.tags.lent if tag.borrower != row.offer]
    if stale:
        return _stale_loan(facts, stale[0])
    if _gate_in_the_way(unit, row):
        return Decision(Action.OPEN, 'the volume is here')
    if unit.tags.source:
        return _hydrating(facts, row)
    lend = _lend_offered(unit, row)
    if lend:
        return lend
    if row.source or unit.meta or unit.of_kind(names.Kind.CLONE,
                                               names.Kind.SOURCE):
        return Decision(Action.COMPLETE, 'hydration has finished')
    if unit.tags.own.volume != row.id and not row.offer:
        return Decision(Action.RENAME, 'Cinder has exchanged the ids')
    return _consumers(facts, row)


def _gate_in_the_way(unit: Unit, row: rows.Row) -> bool:
    """Whether the gate has to go now.

    A front with a read that waits for the lender cannot be led past it: the
    lender comes first, if writes pass.
    """
    if unit.writes_pass and unit.tags.source and not unit.has_path:
        return False
    return (any(map(unit.gated, unit.of_kind(names.Kind.FRONT)))
            or bool(unit.of_kind(*names.GATE)) and not row.offer)


def _lend_offered(unit: Unit, row: rows.Row) -> Decision | None:
    loans = row.offer and unit.missing_loans(row.offer)
    return Decision(Action.LEND, lent=loans) if loans else None


def _stale_loan(facts: Facts, tag: lv_tags.LoanTag) -> Decision:
    """A loan that the row does not know.

    Either its offer was withdrawn, or the database went back to before the
    commit and the borrower has the newest data: only the borrower knows.
    """
    shown = facts.shown.get(tag.borrower)
    if shown is None:
        return Decision(Question.SHOW, ask=tag.borrower, why='the row knows '
                        f'nothing of the loan to {tag.borrower}')
    if shown.group != tag.group or shown.state not in (
            LvState.MISSING, LvState.COPY):
        return Decision(
            Verdict.REPORT, f'{tag.borrower} is {shown.state.value} and may '
            'have newer data, the row knows nothing of it: the database went '
            'back in time')
    return Decision(Action.RECLAIM, 'the offer was withdrawn', lent=(tag,))


def _hydrating(facts: Facts, row: rows.Row) -> Decision:
    unit = facts.unit
    source = unit.tags.source
    assert source is not None
    if row.source != unit.tags.hydrates_from:
        return Decision(
            Verdict.REPORT, f'the LV hydrates from {source.node}/{source.lv}, '
            f'the row says {row.source}')
    if not unit.assembled:
        return Decision(Action.ASSEMBLE)
    lend = _lend_offered(unit, row)
    if lend:
        return lend
    finished = decision.finished(unit)
    if finished and finished.step is Action.FINISH and row.offer:
        # The gate that is ready for the server's move leads to the clone.
        return _consumers(facts, row)
    if finished:
        return finished
    consumers = _consumers(facts, row)
    if consumers.step is Action.CONSUMERS:
        return consumers
    if not unit.queues and not unit.served_only:
        return Decision(Action.RECONNECT, 'reads would fail, not wait')
    if not unit.has_path:
        if unit.queues and unit.served_only:
            return Decision(Action.PAUSE, 'the path to the lender is lost')
        return decision.without_path(unit)
    return decision.copying(unit)


def _consumers(facts: Facts, row: rows.Row) -> Decision:
    """Which consumer devices the attachments justify.

    A reserved attachment justifies the front that stands: the manager writes
    the connector only after the driver has answered
    (``VolumeManager._connection_create``). So does it the export.
    """
    unit, host = facts.unit, facts.node.partition('@')[0]
    front = names.front(host, unit.lv)
    make, drop = set(), set()
    if row.connected_at(host):
        make.add(front)
    elif not row.attachments:
        # Also one that this node made under another name of its own.
        drop.update(unit.of_kind(names.Kind.FRONT))
    remote = {a.initiator for a in row.attachments
              if a.initiator and _in_place(a, row, host)}
    quiet = (row.status in _QUIET
             and row.migration_status in rows.SETTLED_MIGRATION)
    serve = names.serve(unit.lv)
    served = _served(unit, serve)
    if quiet and all(a.connected for a in row.attachments):
        # A session is more than a right that somebody forgot to take back.
        admitted = remote | (served & _logged_in(unit, serve))
        if not remote:
            drop.add(serve)
    else:
        admitted = remote | served
    if remote and served != admitted:
        make.add(serve)
    if not row.attachments and quiet:
        drop.add(names.local_io(unit.lv))
    lent = {names.loan(unit.lv, tag.lv) for tag in unit.tags.lent}
    drop.update(set(unit.of_kind(names.Kind.LOAN)) - lent)
    make -= unit.devices.keys() - {serve}
    drop = {name for name in drop
            if name in unit.devices and not unit.is_held(name)}
    if make or drop:
        return Decision(Action.CONSUMERS, make=frozenset(make),
                        drop=frozenset(drop),
                        initiators=frozenset(admitted if remote else ()))
    pending = any(not a.attached for a in row.attachments)
    leftover = not row.attachments and unit.of_kind(*names.WRITERS)
    if remote:
        # Nothing tells when somebody else takes away what LIO has, and its
        # initiator lets I/O fail after two minutes.
        return Decision(Verdict.WAIT, 'it is served from here')
    if pending or leftover or row.offer:
        return Decision(Verdict.WATCH, 'an attachment is not settled')
    return Decision(Verdict.REST)


def _in_place(attachment: rows.Attachment, row: rows.Row, host: str) -> bool:
    """Whether an attachment is served from here over iSCSI."""
    if not attachment.connected or attachment.host == host:
        return False
    if attachment.kind:
        return attachment.kind == 'iscsi'
    # Not written down yet. A server that is here, too, migrates.
    here = {a.instance for a in row.connected_at(host)} - {None}
    return attachment.instance not in here


def _served(unit: Unit, name: names.DeviceName) -> set[str]:
    return {initiator for export in unit.exports_of(name).values()
            for initiator in export.initiators}


def _logged_in(unit: Unit, name: names.DeviceName) -> set[str]:
    return {initiator for export in unit.exports_of(name).values()
            for initiator in export.sessions}
