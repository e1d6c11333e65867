# SPDX-License-Identifier: Apache-2.0
"""The steps that ``decide`` names, one function each.

Every step is idempotent and leaves what the next decision understands if it
is interrupted. The caller holds the volume's lock.
"""

from __future__ import annotations

import typing

from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Step
from cinder_dmclone.reconcile import observed
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import lender
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import teardown
from cinder_dmclone.stack import write_gate
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)

Facts = observed.Facts


def take(world: World, decision: Decision, known: Facts) -> None:
    """Do what was decided."""
    LOG.info('LV %(lv)s: %(step)s%(why)s',
             {'lv': known.unit.lv, 'step': decision.step.value,
              'why': f' ({decision.why})' if decision.why else ''})
    _STEPS[decision.step](world, decision, known)


def _row(known: Facts) -> rows.Row:
    assert known.row is not None
    return known.row


def _withdraw(world: World, decision: Decision, known: Facts) -> None:
    coordinator.withdraw(world, _row(known))


def _reclaim(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.lent:
        lender.reclaim(world, known.unit, tag)


def _adopt(world: World, decision: Decision, known: Facts) -> None:
    borrower.adopt(world, known.unit, _row(known))


def _assemble(world: World, decision: Decision, known: Facts) -> None:
    clones.assemble(world.host, known.unit)


def _reconnect(world: World, decision: Decision, known: Facts) -> None:
    # Where the server is, or will be: there I/O waits, elsewhere it fails.
    queue = known.home or bool(known.unit.tags.copy)
    if not clones.reconnect(world.host, known.unit, queue):
        raise exceptions.NotYet(
            volume=_row(known).id, node=world.settings.node,
            reason='the lender cannot be reached')


def _hydrate(world: World, decision: Decision, known: Facts) -> None:
    clones.hydrate(world.host, known.unit)


def _finish(world: World, decision: Decision, known: Facts) -> None:
    if not clones.is_complete(world.host, known.unit):
        raise exceptions.NotYet(
            volume=_row(known).id, node=world.settings.node,
            reason='the clone is not complete on disk')
    source = known.unit.tags.source
    clones.swap(world.host, known.unit)
    if not known.home and source:
        # Named by no row: this is how it learns that it may go.
        world.peers.nudge(source.node, _row(known).id)


def _pause(world: World, decision: Decision, known: Facts) -> None:
    teardown.quiesce(world.host, known.unit)


def _rearm(world: World, decision: Decision, known: Facts) -> None:
    write_gate.rearm(world.host, known.unit)


def _reject(world: World, decision: Decision, known: Facts) -> None:
    write_gate.reject(world.host, known.unit)


def _open(world: World, decision: Decision, known: Facts) -> None:
    write_gate.open(world.host, known.unit)


def _fence(world: World, decision: Decision, known: Facts) -> None:
    for front in decision.drop:
        write_gate.fence(world.host, known.unit, front)


def _complete(world: World, decision: Decision, known: Facts) -> None:
    row = _row(known)
    teardown.dismantle(world.host, known.unit)
    if known.home and row.source:
        world.rows.complete(row)
        world.peers.nudge(row.source.node, row.id)


def _consumers(world: World, decision: Decision, known: Facts) -> None:
    unit = known.unit
    for name in decision.drop:
        consumers.drop(world.host, unit, name)
    for name in decision.make:
        consumers.consume(world.host, unit, name)
    if decision.initiators:
        exports.export(world.host, unit, _row(known).id, decision.initiators)


def _lend(world: World, decision: Decision, known: Facts) -> None:
    for tag in decision.lent:
        exports.export_loan(world.host, known.unit, tag)


def _strip(world: World, decision: Decision, known: Facts) -> None:
    teardown.strip(world.host, known.unit)


def _discard(world: World, decision: Decision, known: Facts) -> None:
    write_gate.give_up(world.host, known.unit)
    teardown.teardown(world.host, known.unit)


_STEPS: dict[Step, typing.Callable[[World, Decision, Facts], None]] = {
    Step.WITHDRAW: _withdraw,
    Step.RECLAIM: _reclaim,
    Step.ADOPT: _adopt,
    Step.ASSEMBLE: _assemble,
    Step.RECONNECT: _reconnect,
    Step.HYDRATE: _hydrate,
    Step.FINISH: _finish,
    Step.COMPLETE: _complete,
    Step.PAUSE: _pause,
    Step.REARM: _rearm,
    Step.REJECT: _reject,
    Step.OPEN: _open,
    Step.FENCE: _fence,
    Step.CONSUMERS: _consumers,
    Step.LEND: _lend,
    # The LV itself goes after it was erased, without the lock.
    Step.RELEASE: _strip,
    Step.ERASE: _strip,
    Step.DISCARD: _discard,
}
