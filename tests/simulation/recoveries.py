# SPDX-License-Identifier: Apache-2.0
"""A node is lost, and an operator decides what is to become of its volumes."""

from __future__ import annotations

import functools
import typing
import uuid

from oslo_serialization import jsonutils

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers import wire
from cinder_dmclone.stack import lv_tags
from tests.simulation import cloud as cloud_module
from tests.simulation import truth as truth_module

if typing.TYPE_CHECKING:
    from tests.simulation import control

Violation = truth_module.Violation

# Seconds for which a node is asked, and between two tries of an operator.
TIMEOUT = 60.0
PAUSE = 30.0
TRIES = 10


class NoAnswer(Exception):
    """Whether it was done is not known."""


class NothingDone(NoAnswer):
    """The database is away: that is found out before anything is done."""


def _patiently(what: typing.Callable[[control.Api, truth_module.Truth], None]
               ) -> typing.Callable[[control.Api, truth_module.Truth], None]:
    """Who gets no answer tries again."""
    @functools.wraps(what)
    def patient(api: control.Api, truth: truth_module.Truth) -> None:
        for _ in range(TRIES):
            try:
                return what(api, truth)
            except NoAnswer:
                api.cloud.scheduler.sleep(PAUSE)
        raise api.refused('nobody answers')
    return patient


@_patiently
def give_up(api: control.Api, truth: truth_module.Truth) -> None:
    """``give-up --yes``."""
    row = api.cloud.row(api.volume)
    if row.deleted or row.source is None:
        raise api.refused('give up: it has all')
    plan = ask(api, row.node, messages.GiveUp(api.volume, ''))
    before, truth.torn = truth.torn, (row.owner, row.source)
    try:
        ask(api, row.node, messages.GiveUp(api.volume, plan.record))
    except NothingDone:
        truth.torn = before
        raise


def make_stray(node: cloud_module.Node) -> LvUuid:
    """An LV that nobody knows of, as a purged row leaves one."""
    lv = LvUuid(str(uuid.uuid4()))
    node.group.create(names.data_lv(lv), node.group.report().extent_size, [
        lv_tags.print_tag(lv_tags.CopyTag(3, VolumeId(lv)))])
    node.group.flush()
    return lv


Deed = type[messages.Forget] | type[messages.Release]


def do(deed: Deed, api: control.Api, node: cloud_module.Node,
       lv: LvUuid) -> None:
    """``forget --yes``, or ``release --force --yes``.

    :raises NoAnswer: whether it was done is not known
    """
    plan = ask(api, node.name, deed(lv, ''))
    ask(api, node.name, deed(lv, plan.record))


def strand(api: control.Api, node: cloud_module.Node) -> None:
    """Leave a loan to a copy whose disk is lost, and that no row offers.

    As two crashes of the lender do: after the offer, and after its withdrawal.
    """
    row = api.cloud.row(api.volume)
    group = api.cloud.nodes[row.node].group
    lv = names.data_lv(row.lv)
    tag = lv_tags.LoanTag(
        row.generation + 1, row.id, node.name, LvUuid(str(uuid.uuid4())),
        GroupUuid('of a lost disk'), node.initiator.name(),
        group.report().lvs[lv].size)
    group.retag(lv, add=[lv_tags.print_tag(tag)])
    group.flush()


def drain(api: control.Api) -> None:
    """What ``drain --yes`` asks the node of a volume that has to leave."""
    row = api.cloud.row(api.volume)
    if row.deleted or not row.node:
        raise api.refused('drain: it is nowhere')
    try:
        ask(api, row.node, messages.Leave(api.volume))
    except NoAnswer:
        raise api.refused('drain: no answer') from None


@_patiently
def recover(api: control.Api, truth: truth_module.Truth) -> None:
    """``recover --from-lender --yes``."""
    row = api.cloud.row(api.volume)
    lender = row.source or next(iter(truth.kept or ()), None)
    if row.deleted or lender is None:
        raise api.refused('recover: nobody has lent to it')
    plan = ask(api, lender.node, messages.TakeBack(api.volume, ''))
    ask(api, lender.node, messages.TakeBack(api.volume, plan.record))


def ask(api: control.Api, node: NodeName,
        request: messages.Request[messages.Answer]) -> messages.Answer:
    """What a node answers an operator.

    :raises NoAnswer: if it does not
    """
    what = type(request).__name__
    fields = jsonutils.dumps(wire.pack(request))

    def answer(process: cloud_module.Process) -> tuple[bool, typing.Any]:
        try:
            return True, process.endpoint.answer(None, what,
                                                 jsonutils.loads(fields))
        except cloud_module.ANSWERS as error:
            return False, error
    future = api.cloud.send(what, node, api.fate(what), TIMEOUT, answer,
                            lambda: api.cloud.nodes[node].up)
    if not future.wait(TIMEOUT):
        raise NoAnswer(what)
    good, found = future.value
    if isinstance(found, Exception) and isinstance(
            found.__cause__, exceptions.DatabaseAway):
        raise NothingDone(what)
    if not good:
        raise api.refused(f'{what}: {found}')
    return wire.unpack(request.answer, found)


def moved(truth: truth_module.Truth, left: Location, row: rows.Row) -> None:
    """The row names another LV, a generation later.

    If the volume was that LV before, it is what it was then, and where it
    went since is lost.
    """
    was = truth.left.pop(row.owner, None)
    if truth.kept is None and left not in truth.lost:
        truth.left[left] = truth.read_copies(left, durable=False)
    if was is None:
        return
    if left not in truth.lost:
        raise Violation('I16 lost', f'from {left}, which is not lost')
    if truth.chain(row.owner)[-1] not in truth.lost:
        found = truth.read_copies(row.owner, durable=False)
        if found != was:
            raise Violation('I16 lost', f'{row.owner} has {found}, it had '
                            f'{was} when the volume left it')
    # What is read of it; a lender of its own may be lost as well.
    truth.regions = [truth_module.Region([value], [row.node])
                     for value in was]
    # A bad sector of the lender is one of the volume's own disk now.
    truth.cloud.nodes[row.node].mapper.bad.clear()
    truth.kept = None
    truth.mourn(truth.lost)
