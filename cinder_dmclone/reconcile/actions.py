# SPDX-License-Identifier: Apache-2.0
"""The actions that ``decide`` names, one function each.

Every action is idempotent and leaves what the next decision understands if it
is interrupted. The caller holds the volume's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing

from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import old_copy
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import cut
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import live_migration
from cinder_dmclone.relocation import pins
from cinder_dmclone.relocation import recovery
from cinder_dmclone.relocation import snapshot_move
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import joint
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone.stack import tagging
from cinder_dmclone.stack import teardown
from cinder_dmclone.stack import write_gate
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)

Facts = observed.Facts


# Those that a request does not run ahead of: what is open is settled first.
SETTLING: set[Action] = set()

_Function = typing.Callable[[World, Decision, Facts], None]
_FUNCTIONS: dict[Action, _Function] = {}


def performs(*actions: Action, settles: bool = False) -> typing.Callable[
        [_Function], _Function]:
    """Register the function of actions.

    :param settles: whether a request must not run ahead of them
    """
    def register(function: _Function) -> _Function:
        _FUNCTIONS.update(dict.fromkeys(actions, function))
        if settles:
            SETTLING.update(actions)
        return function
    return register


def take(world: World, decision: Decision, known: Facts) -> None:
    """Do what was decided."""
    LOG.info('LV %(lv)s: %(step)s%(why)s',
             {'lv': known.stack.lv, 'step': decision.step.value,
              'why': f' ({decision.why})' if decision.why else ''})
    assert isinstance(decision.step, Action)
    _FUNCTIONS[decision.step](world, decision, known)


def _row(known: Facts) -> rows.Row:
    assert known.row is not None
    return known.row


@performs(Action.ACTIVATE, settles=True)
def _activate(world: World, decision: Decision, known: Facts) -> None:
    world.host.group.activate()


@performs(Action.WITHDRAW, settles=True)
def _withdraw(world: World, decision: Decision, known: Facts) -> None:
    coordinator.withdraw(world, _row(known), decision.why)


@performs(Action.REVOKE, settles=True)
def _revoke(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.lent:
        lender.revoke_loan(world, known.stack, tag)


@performs(Action.DISCHARGE)
def _discharge(world: World, decision: Decision, known: Facts) -> None:
    row = _row(known)
    past = lv_tags.PastTag(row.generation, row.id, row.node, row.lv)
    for tag in decision.lent:
        lender.revoke_loan(world, known.stack, tag, past)


@performs(Action.BAR)
def _bar(world: World, decision: Decision, known: Facts) -> None:
    past = old_copy.bar(known, _row(known))
    assert past is not None
    for tag in decision.lent:
        lender.revoke_loan(world, known.stack, tag, past)
    if not decision.lent:
        tagging.write(world.host, known.stack.lv, add=[past])


@performs(Action.RULE_OUT, settles=True)
def _rule_out(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.snaps:
        # If it was made after all, the next look finds it.
        with contextlib.suppress(exceptions.RowChanged):
            world.snapshots.rule_out(known.snapshots[tag.snapshot])


@performs(Action.STAY)
def _stay(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.snaps:
        snapshot_move.withdraw(world, known.snapshots[tag.snapshot],
                               decision.why)


@performs(Action.ARRIVE)
def _arrive(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.snaps:
        snapshot_move.arrive(world, known.snapshots[tag.snapshot])


@performs(Action.UNPIN, settles=True)
def _unpin(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.snaps:
        pins.forget(world, known.stack.lv, tag)


@performs(Action.ADOPT, settles=True)
def _adopt(world: World, decision: Decision, known: Facts) -> None:
    borrower.adopt(world, known.stack, _row(known))


@performs(Action.TAKE_BACK, settles=True)
def _take_back(world: World, decision: Decision, known: Facts) -> None:
    recovery.resume(world, known.stack, _row(known), decision.lent)


@performs(Action.RENAME, settles=True)
def _rename(world: World, decision: Decision, known: Facts) -> None:
    rename(world, known.stack, _row(known))


def rename(world: World, stack: state.Stack, row: rows.Row) -> None:
    """Write down which volume an LV is by now.

    The tag tells whose lock to take without the database, and which row is
    the LV's when it was deleted.
    """
    own, past = stack.tags.own, stack.tags.past
    assert own is not None
    wanted = dataclasses.replace(own, volume=row.id)
    tagging.write(world.host, stack.lv, add=[wanted], remove=[
        tag for tag in (own, past) if tag and tag != wanted])


@performs(Action.ASSEMBLE, settles=True)
def _assemble(world: World, decision: Decision, known: Facts) -> None:
    clones.assemble(world.host, known.stack)


@performs(Action.RECONNECT)
def _reconnect(world: World, decision: Decision, known: Facts) -> None:
    # Where the server is, or will be: there I/O waits, elsewhere it fails.
    stack = known.stack
    queue = known.left_behind or not stack.served_only and (
        known.row is None or known.home or bool(stack.tags.copy))
    if not clones.reconnect(world.host, stack, queue):
        raise exceptions.RetryLater(
            volume=stack.volume, node=world.settings.node,
            reason='the lender cannot be reached')


@performs(Action.HYDRATE)
def _hydrate(world: World, decision: Decision, known: Facts) -> None:
    clones.hydrate(world.host, known.stack)


@performs(Action.FINISH)
def _finish(world: World, decision: Decision, known: Facts) -> None:
    if not clones.is_complete(world.host, known.stack):
        raise exceptions.RetryLater(
            volume=_row(known).id, node=world.settings.node,
            reason='the clone is not complete on disk')
    source = known.stack.tags.source
    clones.swap(world.host, known.stack)
    if not known.home and source:
        # Named by no row: this is how it learns that it may go.
        world.peers.notify(source.node, _row(known).id)


@performs(Action.GIVE_UP, settles=True)
def _give_up(world: World, decision: Decision, known: Facts) -> None:
    clones.give_up(world.host, known.stack)


@performs(Action.PAUSE)
def _pause(world: World, decision: Decision, known: Facts) -> None:
    teardown.quiesce(world.host, known.stack)


@performs(Action.REARM)
def _rearm(world: World, decision: Decision, known: Facts) -> None:
    write_gate.rearm(world.host, known.stack)


@performs(Action.REJECT)
def _reject(world: World, decision: Decision, known: Facts) -> None:
    write_gate.reject(world.host, known.stack)


@performs(Action.LEAD_OVER, settles=True)
def _lead_over(world: World, decision: Decision, known: Facts) -> None:
    assert known.lender is not None
    joint.lead_over(world.host, known.stack, known.lender)


@performs(Action.OPEN, settles=True)
def _open(world: World, decision: Decision, known: Facts) -> None:
    live_migration.keep_here(world, _row(known))
    write_gate.open_gate(world.host, known.stack)


@performs(Action.FENCE)
def _fence(world: World, decision: Decision, known: Facts) -> None:
    for front in decision.drop:
        write_gate.fence(world.host, known.stack, front)


@performs(Action.RECORD, settles=True)
def _record(world: World, decision: Decision, known: Facts) -> None:
    world.rows.create(_row(known), None)


@performs(Action.LET_GO)
def _let_go(world: World, decision: Decision, known: Facts) -> None:
    world.rows.let_go(_row(known))


@performs(Action.COMPLETE)
def _complete(world: World, decision: Decision, known: Facts) -> None:
    row = _row(known)
    teardown.dismantle(world.host, known.stack)
    if known.home and row.source:
        world.rows.complete(row)
        world.peers.notify(row.source.node, row.id)


@performs(Action.CONSUMERS, settles=True)
def _consumers(world: World, decision: Decision, known: Facts) -> None:
    stack = known.stack
    for name in decision.drop:
        consumers.drop(world.host, stack, name)
    if known.row and any(
            name.kind in names.WRITERS for name in decision.make):
        if stack.frozen(known.row.offer):
            # The next look finds the LV that may be written.
            cut.cut(world, known.row)
            return
        # The seal for a commit may have taken it away.
        live_migration.keep_here(world, known.row)
    for name in decision.make:
        consumers.consume(world.host, stack, name)
    if decision.initiators:
        exports.admit(world.host, stack, decision.initiators)


@performs(Action.LEND)
def _lend(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.lent:
        exports.export_loan(world.host, known.stack, tag)


# The LV itself goes after it was erased, without the lock.
@performs(Action.ERASE)
def _erase(world: World, decision: Decision, known: Facts) -> None:
    stack, source = known.stack, known.stack.tags.source
    if not stack.bare:
        teardown.strip(world.host, stack)
    # Others may be overwritten first. An LV that has all is what it was until
    # its turn comes; another one has lost its lender from here on.
    if stack.bare or source:
        teardown.condemn(world.host, stack)
    if source and not stack.bare:
        world.peers.notify(source.node,
                           known.row.id if known.row else stack.volume)


@performs(Action.DISCARD)
def _discard(world: World, decision: Decision, known: Facts) -> None:
    borrower.destroy(world.host, known.stack)
