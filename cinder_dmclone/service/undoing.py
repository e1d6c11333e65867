# SPDX-License-Identifier: Apache-2.0
"""An operator takes back what was decided about an LV, and is a tag of it."""

from __future__ import annotations

import functools

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import tagging


def undo(service: Service, request: messages.Undo) -> messages.Plan:
    """Let an LV be what it was before it was forgotten, or given up in part.

    Also one whose deletion had begun when the database was restored.

    The reconciler then decides about it as about any other.

    :raises NotUndone: if nothing was decided about it, if that cannot be
        taken back, or if an operator has agreed to something else
    """
    volume = inspect.refresh(service.host, request.lv).volume
    with service.locked(volume, messages.Lock.SHORT):
        decision, known = service.loop.judge(request.lv, volume)
        stack = known.stack
        if stack.unreadable:
            raise _refusal(service, request.lv, stack.unreadable)
        tags: tuple[lv_tags.Tag | None, ...] = ()
        if request.kind == lv_tags.ForgottenTag.kind:
            tags = stack.tags.forgotten, stack.tags.erased
        elif request.kind == lv_tags.LostTag.kind:
            tags = stack.tags.lost,
        found = [tag for tag in tags if tag]
        if not found:
            raise _refusal(service, request.lv,
                           f'nobody has decided that it is {request.kind}')
        plan = (_waited_for(service, known) if stack.tags.lost in found
                else _kept(service, decision, known))
        if plan.agreed(request.record, functools.partial(
                _refusal, service, request.lv)):
            with service.loop.erasures.halt(request.lv) as halted:
                # Who has it open, that has no devices, overwrites it still:
                # what did it for this process may outlive that.
                data = stack.data
                if not halted or stack.tags.erased and stack.bare and (
                        data and data.devnum and service.host.dm.open_count(
                            data.devnum)):
                    raise _refusal(service, request.lv, 'it is being '
                                   'overwritten, and its disk is slow: try '
                                   'again')
                tagging.write(service.host, request.lv, remove=found)
    service.loop.enqueue(request.lv)
    return plan


def _kept(service: Service, decision: Decision,
          known: observed.Facts) -> messages.Plan:
    """What it means that an LV is kept after all.

    :raises NotUndone: if it is being deleted
    """
    if decision.step is not Verdict.REPORT:
        raise _refusal(service, known.stack.lv, 'no volume and no snapshot '
                       'needs it: it is being deleted')
    assert known.stack.data is not None
    return messages.Plan(
        does=f'LV {names.data_lv(known.stack.lv)} on {service.node} is '
        f'{"forgotten" if known.stack.tags.forgotten else "deleted"} no more. '
        f'Until now: {decision.why}.',
        # A database may have been restored while it was being erased.
        gives_up=['what was overwritten of it already, if its deletion had '
                  'begun: compare it with a backup'],
        record=f'{decision.why} {lv_tags.ours(known.stack.data.tags)}')


def _waited_for(service: Service, known: observed.Facts) -> messages.Plan:
    """What it means that what has not arrived is waited for again.

    :raises NotUndone: if its lender does not have it
    """
    stack = known.stack
    source, tag = stack.tags.source, stack.tags.lost
    if source is None or tag is None or not known.home:
        raise _refusal(service, stack.lv, 'it needs a look, as the log of '
                       'cinder-volume says')
    try:
        shown = service.world.peers.ask(source.node, messages.Show(source.lv))
    except (exceptions.PeerUnreachable, exceptions.PeerRefused) as error:
        raise _refusal(service, stack.lv, error.msg.rstrip('.')) from error
    if shown.size < source.size or shown.state not in (
            LvState.COMPLETE, LvState.HYDRATING):
        raise _refusal(service, stack.lv, f'its lender {source.node}/'
                       f'{source.lv} is {shown.state.value}, and has '
                       f'{shown.size} bytes of {source.size}')
    return messages.Plan(
        does=f'What has not arrived of volume {tag.volume} on {service.node} '
        f'arrives from {source.node}/{source.lv}, which is there again. Until '
        'then reads of it wait.',
        gives_up=[], record=f'{lv_tags.print_tag(tag)} {source.lv}')


def _refusal(service: Service, lv: LvUuid,
             reason: str) -> exceptions.NotUndone:
    return exceptions.NotUndone(lv=lv, node=service.node, reason=reason)
