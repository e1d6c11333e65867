# SPDX-License-Identifier: Apache-2.0
"""What to do about an LV that is the volume."""

from __future__ import annotations

from cinder.objects.fields import VolumeStatus

from cinder_dmclone.database.attachment import Attachment
from cinder_dmclone.database import rows
from cinder_dmclone.location import host_of
from cinder_dmclone import names
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile.observed import Facts
from cinder_dmclone.reconcile import pins
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack

# Statuses in which no service of the control plane works on the volume's
# data without an attachment saying so.
_QUIET = (VolumeStatus.AVAILABLE, VolumeStatus.ERROR, VolumeStatus.IN_USE)
# Those of a volume that has been made.
_WHOLE = (VolumeStatus.AVAILABLE, *rows.ATTACH_STATUSES)


def decide(facts: Facts, row: rows.Row) -> Decision:
    """The next step for the LV of the node that owns the volume."""
    stack = facts.stack
    if stack.data is None:
        return Decision(
            Verdict.REPORT, 'the LV of this volume is gone'
            + (f'; its source {row.source} is kept' if row.source else ''))
    if row.offer and (facts.overdue or not row.migration):
        return Decision(Action.WITHDRAW, f'nobody works on offer {row.offer}')
    if facts.unrecorded and row.status in _WHOLE:
        return Decision(Action.RECORD, 'its creation was interrupted, and its '
                        'status was reset')
    if not stack.tags.own and not stack.tags.copy and row.source:
        return Decision(Verdict.REPORT, 'the LV has lost its tags; whether it '
                        'is complete is not known')
    if stack.tags.copy and row.status in rows.BEING_MADE:
        return Decision(Verdict.WAIT, 'Cinder makes the volume')
    if stack.tags.copy or not stack.tags.own:
        return Decision(Action.ADOPT, 'the row names this LV the volume')
    if stack.tags.own.volume != row.id:
        return Decision(Action.RENAME, 'Cinder has exchanged the ids')
    if stack.tags.past and not stack.tags.lent:
        # Not later than the row: it was barred while that named another LV.
        return Decision(Action.RENAME, 'the row names it again')
    lost = loans.to_lost_owner(stack, row)
    if lost:
        return Decision(Action.TAKE_BACK, 'the row names its lender again',
                        lent=lost)
    stale = [found for tag in stack.tags.lent
             for found in [stale_loan(facts, row, tag)] if found]
    if stale:
        return decision.one_question(stale) or stale[0]
    unpin = pins.ended(facts)
    if unpin:
        return unpin
    if facts.lagging:
        return _path_back(facts) or Decision(
            Action.LEAD_OVER, 'the volume is this LV')
    if _gate_in_the_way(stack, row):
        return Decision(Action.OPEN, 'the volume is here')
    if stack.tags.source:
        return _hydrating(facts, row)
    lend = _lend_offered(stack, row)
    if lend:
        return lend
    if row.source or stack.leftovers:
        return Decision(Action.COMPLETE, 'hydration has finished')
    return _consumers(facts, row)


def _gate_in_the_way(stack: Stack, row: rows.Row) -> bool:
    """Whether the gate has to go now.

    A front with a read that waits for the lender cannot be led past it: the
    lender comes first, if writes pass.
    """
    if stack.writes_pass and stack.tags.source and not stack.has_path:
        return False
    return (any(map(stack.gated, stack.of_kind(names.Kind.FRONT)))
            or bool(stack.of_kind(*names.GATE)) and not row.offer)


def _lend_offered(stack: Stack, row: rows.Row) -> Decision | None:
    missing = stack.missing_loans(stack.loans_to(row.offer))
    return Decision(Action.LEND, lent=missing) if missing else None


def stale_loan(facts: Facts, row: rows.Row,
               tag: lv_tags.LoanTag) -> Decision | None:
    """A loan to a later copy of this volume, of which the row knows nothing.

    Either its offer was withdrawn, or the database went back to before the
    commit and the borrower has the newest data: only the borrower knows.
    """
    if tag.volume != row.id or tag.borrower == row.offer:
        return None
    if tag.borrower in facts.silent:
        return loans.silent(facts, tag.borrower, 'the row knows nothing of '
                            f'the loan to {tag.borrower}, and ')
    shown = facts.shown.get(tag.borrower)
    if shown is None:
        return decision.show(tag.borrower)
    if shown.group == tag.group and 0 < shown.generation <= row.generation:
        # The volume has gone on from there since.
        return None
    if shown.group != tag.group or shown.state not in (
            LvState.MISSING, LvState.COPY):
        return Decision(
            Verdict.REPORT, f'{tag.borrower} is {shown.state.value} and may '
            'have newer data, the row knows nothing of it: the database went '
            'back in time')
    return Decision(Action.REVOKE, 'the offer was withdrawn', lent=(tag,))


def _path_back(facts: Facts) -> Decision | None:
    """What a read waits for that went through who is led over.

    While it waits nothing it went through can change. It failed, and was
    queued again here, while the lender of the LV below was away.
    """
    stack = facts.stack
    if not (stack.tags.source and stack.assembled):
        return None
    away = decision.without_path(stack, facts.lender)
    return away if away and away.step is Action.RECONNECT else None


def _hydrating(facts: Facts, row: rows.Row) -> Decision:
    stack = facts.stack
    source = stack.tags.source
    assert source is not None
    if row.source != stack.tags.hydrates_from:
        return Decision(
            Verdict.REPORT, f'the LV hydrates from {source.node}/{source.lv}, '
            f'the row says {row.source}')
    if not stack.assembled:
        return _assemble(facts)
    if stack.tags.lost:
        return _given_up(facts, row, source)
    lend = _lend_offered(stack, row)
    if lend:
        return lend
    finished = decision.finished(stack)
    # The gate that is ready for the server's move leads to the clone.
    stays = finished and finished.step is Action.FINISH and row.offer
    if finished and not stays:
        return finished
    consumers = _consumers(facts, row)
    if consumers.step is Action.CONSUMERS:
        return consumers
    if not stack.queues and not stack.served_only:
        return Decision(Action.RECONNECT, 'reads would fail, not wait')
    away = decision.without_path(stack, facts.lender)
    if away and stack.served_only and not stack.quiesced:
        return Decision(Action.PAUSE, 'the path to the lender is lost')
    if away:
        # Also if all regions are here: a read that began before they were
        # waits in the source, and a server that waits cannot move.
        return away
    return consumers if stays else decision.copying(stack, facts.lender)


def _given_up(facts: Facts, row: rows.Row,
              source: lv_tags.SourceTag) -> Decision:
    """An operator has given up what has not arrived: its lender is lost."""
    finished = decision.finished(facts.stack)
    if finished:
        return finished
    if not facts.stack.given_up:
        return Decision(Action.GIVE_UP, f'{source.node} is lost')
    consumers = _consumers(facts, row)
    if consumers.step is Action.CONSUMERS:
        return consumers
    return Decision(
        Verdict.WATCH, 'what has not arrived was given up', hindrance='what '
        f'has not arrived of volume {row.id} was given up: its lender '
        f'{source.node} is lost. A server that reads it gets I/O errors.')


def _assemble(facts: Facts) -> Decision:
    """A copy of an LV of this node is put together after that one."""
    lends = facts.lender is None or any(
        facts.lender.lends(tag)
        for tag in facts.lender.loans_to(facts.here))
    return (Decision(Action.ASSEMBLE) if lends
            else Decision(Verdict.WAIT, 'its lender here lends first'))


def _consumers(facts: Facts, row: rows.Row) -> Decision:
    """Which consumer devices the attachments justify.

    A reserved attachment justifies the front that stands: the manager writes
    the connector only after the driver has answered
    (``VolumeManager._connection_create``). So does it the export.
    """
    stack, host = facts.stack, host_of(facts.node)
    front = names.front(host, stack.known_as)
    make, drop = set(), set()
    if row.connected_at(host):
        make.add(front)
    elif all(a.connected for a in row.attachments):
        # Also one that this node made under another name of its own, and one
        # of a boot: what is read elsewhere must not wait here.
        drop.update(stack.of_kind(names.Kind.FRONT))
    remote = {a.initiator for a in row.attachments
              if a.initiator and _in_place(a, row, host)}
    quiet = (row.status in _QUIET
             and row.migration_status in rows.SETTLED_MIGRATION)
    serve = names.serve(stack.known_as)
    served = _served(stack, serve)
    if quiet and all(a.connected for a in row.attachments):
        # A session is more than a right that somebody forgot to take back.
        admitted = remote | (served & stack.sessions_of(serve))
        if not remote:
            drop.add(serve)
    else:
        admitted = remote | served
    if remote and served != admitted:
        make.add(serve)
    if not row.attachments and quiet:
        drop.update(facts.forgotten & {names.local_io(stack.known_as)})
    lent = {names.loan(stack.lv, tag.lv) for tag in stack.tags.lent}
    drop.update(set(stack.of_kind(names.Kind.LOAN)) - lent)
    make -= stack.devices.keys() - {serve}
    drop = {name for name in drop
            if name in stack.devices and not stack.is_held(name)}
    if make or drop:
        return Decision(Action.CONSUMERS, make=frozenset(make),
                        drop=frozenset(drop),
                        initiators=frozenset(admitted if remote else ()))
    if row.let_down:
        return (Decision(Action.LET_GO, 'who wanted it has gone')
                if facts.let_down else
                Decision(Verdict.WAIT, 'somebody may want it'))
    pending = any(not a.attached for a in row.attachments)
    leftover = not row.attachments and stack.of_kind(*names.WRITERS)
    if remote or served:
        # Nothing tells when somebody else takes away what LIO has, and its
        # initiator lets I/O fail after two minutes. Nor does Cinder tell
        # when it forgets an attachment that has failed.
        return Decision(Verdict.WAIT, 'it is served from here')
    if pending or leftover or row.offer:
        return Decision(Verdict.WATCH, 'an attachment is not settled')
    return Decision(Verdict.REST)


def _in_place(attachment: Attachment, row: rows.Row, host: str) -> bool:
    """Whether an attachment is served from here over iSCSI."""
    if not attachment.connected or attachment.host == host:
        return False
    if attachment.kind:
        return attachment.over_iscsi
    # Not written down yet. A server that is here, too, migrates: with an
    # offer, unless others have the volume as well.
    if row.multiattach and not row.offer:
        return True
    here = {a.instance for a in row.connected_at(host)} - {None}
    return attachment.instance not in here


def _served(stack: Stack, name: names.DeviceName) -> set[str]:
    """Whom a device is served to; to nobody by a target that is half made."""
    return {initiator for export in stack.exports_of(name).values()
            if export.enabled for initiator in export.initiators}
