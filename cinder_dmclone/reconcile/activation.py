# SPDX-License-Identifier: Apache-2.0
"""Bring a node's volumes up from what its LVs say, without a control plane.

Tags are only ever more cautious than the row: an LV that says it is the
volume and was never lent since is the volume. Its front is brought up;
whether a server still wants it is found out when the database is there.

cinder-volume may be at work meanwhile: each LV is looked at once more under
its volume's lock, and steps are taken there only.
"""

from __future__ import annotations

import collections
from concurrent import futures
import typing

from oslo_log import log as logging

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.reconcile import actions
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)

Decision = decision.Decision

# LVs that hydrate from one lender, and who logs in to it for them.
_Borrowed: typing.TypeAlias = list[state.Stack]
_LogIn: typing.TypeAlias = typing.Callable[[_Borrowed], None]
_Each: typing.TypeAlias = typing.Callable[
    [_LogIn, typing.Iterable[_Borrowed]], object]

# Assemble, lend or make a front, and see that this was all.
_MOST_STEPS = 4

# Servers wait for the end of all logins before they start. None is begun after
# so many seconds; one that no lender answers takes eleven.
LOGINS_SECONDS = 8.0
# Lenders that are tried at a time.
LENDERS = 16

_TAKEN = (Action.ASSEMBLE, Action.LEND, Action.CONSUMERS)


def decide(host: str, stack: state.Stack) -> Decision:
    """The next step for an LV while nobody can be asked about its volume.

    Only the LV that is the volume, and was not lent since, gets a front.

    :param host: the node's name as connectors give it
    """
    tags = stack.tags
    if stack.unreadable:
        return Decision(Verdict.REPORT, stack.unreadable)
    moved = tags.only_snapshot and not tags.source
    if not (tags.own or moved) or tags.copy or (
            tags.forgotten or tags.erased):
        return Decision(Verdict.WAIT,
                        'whether it is the volume, the row knows')
    if tags.source and (not stack.assembled or _fails(stack)):
        return Decision(Action.ASSEMBLE)
    if tags.lent:
        missing = stack.missing_loans(tags.lent)
        return Decision(Action.LEND if missing else Verdict.REST, lent=missing)
    if tags.bars_front or stack.of_kind(names.Kind.FRONT, *names.GATE):
        return Decision(Verdict.REST)
    front = names.front(host, stack.known_as)
    return Decision(Action.CONSUMERS, make=frozenset([front]))


def _fails(stack: state.Stack) -> bool:
    """Whether a server's reads would fail and not wait for the lender.

    So a deactivation leaves a source that was interrupted. For those who
    borrow, or read over iSCSI, it is meant.
    """
    if stack.tags.lost:
        return False
    return not (stack.queues or stack.served_only or stack.tags.lent)


def activate_volumes(host: Host) -> dict[str, str]:
    """Let LVM make the devices of its volumes: nothing is built on them.

    :returns: why some are not there, by the name of their group. All of the
        metadata group may be missing: only what hydrates needs them
    """
    problems = _activate_group(host.group)
    if host.own_meta_group:
        try:
            problems |= _activate_group(host.own_meta_group)
        except Exception as error:
            LOG.error('No volume can be taken in, and what hydrated here '
                      'cannot be put together: %s', said(error))
            problems[host.own_meta_group.name] = said(error)
    return problems


def _activate_group(group: lvm.VolumeGroup) -> dict[str, str]:
    """One whose disk is missing must not keep the others from coming up.

    LVM makes the devices of all that it can, and then fails
    (``_activate_lvs_in_vg`` in its tools/vgchange.c). Nor must a pool whose
    metadata is looked at for too long.
    """
    try:
        group.activate()
    except (exceptions.CommandFailed, exceptions.CommandTimeout) as error:
        # If there is no such group that is the error.
        group.report(patient=True)
        LOG.error('Not all logical volumes of volume group %(group)s can be '
                  'used: %(error)s', {'group': group.name,
                                      'error': error.msg})
        return {group.name: error.msg}
    return {}


def _at_once(log_in: _LogIn, lenders: typing.Iterable[_Borrowed]) -> None:
    with futures.ThreadPoolExecutor(LENDERS) as pool:
        # Raises what one of them has raised.
        list(pool.map(log_in, lenders))


def activate(world: World, each: _Each = _at_once) -> dict[str, str]:
    """Exports, stacks and fronts first, then logins.

    A volume that cannot be brought up does not keep others from it.

    :param each: logs in to each lender
    :returns: what could not be brought up and why, by LV uuid; also the
        metadata group, by its name
    """
    host = world.host
    problems = activate_volumes(host)
    stacks = inspect.collect(host, patient=True)
    if any(stack.tags.lent for stack in stacks.values()):
        try:
            host.targets.load()
        except Exception as error:
            # Each loan fails with a reason of its own; the rest comes up.
            LOG.error('Nothing can be lent: %s', said(error))
    for lv, stack in lenders_first(stacks).items():
        try:
            _bring_up(world, stack)
        except Exception as error:
            problems[lv] = said(error)
    _log_in(world, each)
    return problems


def lenders_first(stacks: dict[LvUuid, state.Stack]) -> dict[
        LvUuid, state.Stack]:
    """Each after the LV of this node that it hydrates from."""
    found: dict[LvUuid, state.Stack] = {}

    def add(lv: LvUuid) -> None:
        if lv in found or lv not in stacks:
            return
        source = stacks[lv].tags.source
        if source and source.local:
            add(source.lv)
        found[lv] = stacks[lv]

    for lv in stacks:
        add(lv)
    return found


def said(error: Exception) -> str:
    """What to tell an operator; what nobody expected is logged in full."""
    if isinstance(error, exceptions.DMCloneException):
        return error.msg
    LOG.error('This was not expected.', exc_info=error)
    return f'{type(error).__name__}: {error}'


def _bring_up(world: World, stack: state.Stack) -> None:
    # Most LVs have nothing to do; what they are is no secret.
    if _decide(world, stack).step not in _TAKEN:
        return
    with world.locks.volume(stack.volume, deadlines.LOCK_SECONDS):
        for _ in range(_MOST_STEPS):
            found = inspect.refresh(world.host, stack.lv)
            needed = _decide(world, found)
            if needed.step not in _TAKEN:
                return
            known = observed.Facts(world.settings.node, found, None)
            actions.take(world, needed, known)


def _decide(world: World, stack: state.Stack) -> Decision:
    found = decide(world.settings.host, stack)
    if found.step is Verdict.REPORT:
        raise exceptions.CorruptRecord(record=stack.lv, reason=found.why)
    return found


def _log_in(world: World, each: _Each) -> None:
    """Let servers read what is not here yet.

    Without that they only wait longer: cinder-volume tries again.
    """
    end = world.clock.monotonic() + LOGINS_SECONDS
    lenders: dict[str, _Borrowed] = collections.defaultdict(list)
    for _, stack in _readers(inspect.collect(world.host, patient=True)):
        lenders[_portal(stack)].append(stack)

    def log_in(borrowed: _Borrowed) -> None:
        """A lender that is down, or boots itself, is tried once."""
        for stack in borrowed:
            if world.clock.monotonic() > end or (
                    not _reconnect(world, stack)
                    and world.host.initiator.silent(_portal(stack))):
                return
    each(log_in, lenders.values())


def _portal(stack: state.Stack) -> str:
    assert stack.tags.source is not None
    return stack.tags.source.portal


def _reconnect(world: World, stack: state.Stack) -> bool:
    """Log in for an LV, if it still needs that; False if it failed."""
    lv, host = stack.lv, world.host
    try:
        with world.locks.volume(stack.volume, deadlines.LOCK_SECONDS):
            for _, found in _readers({lv: inspect.refresh(host, lv)}):
                clones.reconnect(host, found, queue=not found.served_only)
    except Exception as error:
        LOG.warning('LV %(lv)s: %(error)s', {'lv': lv, 'error': said(error)})
        return False
    return True


def _readers(stacks: dict[LvUuid, state.Stack]) -> typing.Iterator[
        tuple[LvUuid, state.Stack]]:
    """Those with a server that waits for a lender, or may.

    It may have a copy of what waits.
    """
    for lv, stack in stacks.items():
        if (stack.tags.source and stack.assembled and not stack.tags.lost
                and not stack.has_path
                and (stack.of_kind(names.Kind.FRONT)
                     or any(tag.local for tag in stack.tags.lent))):
            yield lv, stack
