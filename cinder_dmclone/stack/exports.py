# SPDX-License-Identifier: Apache-2.0
"""Serving a volume where it is: as a local device or over iSCSI."""

from __future__ import annotations

import typing

from oslo_log import log as logging
from oslo_utils import excutils

from cinder_dmclone import exceptions
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state

LOG = logging.getLogger(__name__)


def local(path: str, thin: bool = False) -> dict[str, typing.Any]:
    """Connection info of a device of a node (os-brick's LOCAL).

    :param thin: whether what is discarded goes back to a pool. If not,
        Cinder says what ``report_discard_supported`` does
    """
    discard = {'discard': True} if thin else {}
    return {'driver_volume_type': 'local',
            'data': {'device_path': path, **discard}}


def export(host: Host, stack: state.Stack, volume_id: VolumeId,
           initiator: str) -> dict[str, typing.Any]:
    """Serve a volume read-write to an initiator, besides those it has.

    :returns: connection info for os-brick's iSCSI connector
    :raises TargetUnusable: if the kernel refuses; who was served before still
        is, and nobody else
    """
    # LIO has initiator names in lower case.
    initiator = initiator.lower()
    iqn = names.serve_iqn(host.settings.target_prefix, stack.known_as)
    current = stack.exports.get(iqn)
    served = current.initiators if current else frozenset()
    try:
        admit(host, stack, {initiator, *served})
    except exceptions.TargetStuck:
        # An undo would be stuck too, for longer than anybody waits for the
        # answer.
        raise
    except Exception:
        with excutils.save_and_reraise_exception():
            # Cinder forgets an attachment that failed without a word.
            if initiator not in served:
                _undo(host, stack, initiator)
    return _remote(host, volume_id, iqn, initiator)


def _remote(host: Host, read_as: str, iqn: str,
            initiator: str) -> dict[str, typing.Any]:
    """Connection info of a target of this node (os-brick's ISCSI)."""
    user, password = host.settings.credentials(iqn, initiator)
    return {'driver_volume_type': 'iscsi', 'data': {
        'target_discovered': False, 'target_iqn': iqn,
        'target_portal': host.settings.portal, 'target_lun': 0,
        # With lists os-brick discovers nothing. A discovery makes all node
        # records of the portal anew, those of loans without their passwords.
        'target_iqns': [iqn], 'target_portals': [host.settings.portal],
        'target_luns': [0],
        'volume_id': read_as, 'discard': False,
        'auth_method': 'CHAP', 'auth_username': user,
        'auth_password': password}}


def _undo(host: Host, stack: state.Stack, initiator: str) -> None:
    try:
        unexport(host, stack, initiator)
    except exceptions.DMCloneException as error:
        LOG.warning('LV %(lv)s: what was made to serve it to %(initiator)s is '
                    'left to the reconciler: %(error)s',
                    {'lv': stack.lv, 'initiator': initiator,
                     'error': error.msg})


def admit(host: Host, stack: state.Stack,
          initiators: typing.Iterable[str]) -> None:
    """Serve a volume read-write to these initiators and to nobody else.

    :param initiators: in lower case, as LIO has them
    """
    name = names.serve(stack.known_as)
    consumers.consume(host, stack, name)
    iqn = names.serve_iqn(host.settings.target_prefix, stack.known_as)
    current = stack.exports.get(iqn)
    # A disk that is there stays the same one when the volume is cut.
    serial = current.serial if current and current.serial else stack.known_as
    host.targets.ensure(targets.Export(
        iqn=iqn, device=name.path, serial=serial, readonly=False,
        grants=_grants(host, iqn, initiators)))


def _grants(host: Host, iqn: str, initiators: typing.Iterable[str]
            ) -> tuple[targets.Grant, ...]:
    return tuple(
        targets.Grant(initiator, *host.settings.credentials(iqn, initiator))
        for initiator in sorted(initiators))


def unexport(host: Host, stack: state.Stack, initiator: str | None) -> bool:
    """End what an initiator was served; all of them if None.

    :returns: whether other initiators are still served
    """
    iqn = names.serve_iqn(host.settings.target_prefix, stack.known_as)
    current = stack.exports.get(iqn)
    initiator = initiator and initiator.lower()
    others = set(current.initiators if current else ()) - {initiator}
    if initiator and others:
        host.targets.revoke(iqn, initiator)
        return True
    host.targets.remove(iqn)
    host.dm.remove(str(names.serve(stack.known_as)))
    return False


def view(host: Host, stack: state.Stack, read_as: str,
         initiator: str | None) -> dict[str, typing.Any]:
    """Let somebody read a volume or a snapshot, and only read; idempotent.

    Who reads already goes on: a request may come late, when somebody else
    has been given the view.

    :param read_as: its id
    :param initiator: None for this node itself
    :returns: connection info for os-brick
    """
    name = names.view(stack.lv, read_as)
    if initiator is None:
        consumers.read_here(host, stack, name)
    else:
        consumers.consume(host, stack, name)
    iqn = names.view_iqn(host.settings.target_prefix, stack.lv, read_as)
    current = stack.exports.get(iqn)
    if initiator is None:
        if current and not current.sessions:
            # It would hide who has the view open here (``Stack.is_held``).
            host.targets.remove(iqn)
        return local(host.dm.link(str(name)))
    # LIO has initiator names in lower case.
    initiator = initiator.lower()
    initiators = {initiator, *(current.initiators if current else ())}
    host.targets.ensure(targets.Export(
        iqn=iqn, device=name.path, serial=read_as, readonly=True,
        grants=_grants(host, iqn, initiators)))
    return _remote(host, read_as, iqn, initiator)


def unview(host: Host, stack: state.Stack, read_as: str,
           initiator: str | None) -> None:
    """End ``view``, unless another initiator reads by now; idempotent.

    :param initiator: whose it was
    :raises DeviceBusy: if somebody on this node reads it still
    """
    name = names.view(stack.lv, read_as)
    readers = stack.sessions_of(name)
    if name in stack.devices and readers <= {(initiator or '').lower()}:
        consumers.drop(host, stack, name)


def unview_elsewhere(host: Host, stack: state.Stack, read_as: str) -> None:
    """Let nobody elsewhere read a volume any more; idempotent."""
    iqn = names.view_iqn(host.settings.target_prefix, stack.lv, read_as)
    if iqn in stack.exports:
        consumers.drop(host, stack, names.view(stack.lv, read_as))


def export_loan(host: Host, stack: state.Stack, tag: lv_tags.LoanTag) -> None:
    """Let a borrower read a lent LV, and only read; idempotent."""
    name = names.loan(stack.lv, tag.lv)
    consumers.consume(host, stack, name)
    if tag.local:
        return
    iqn = loan_iqn(host, stack, tag)
    grant = targets.Grant(tag.initiator, *host.settings.credentials(iqn))
    host.targets.ensure(targets.Export(
        iqn=iqn, device=name.path, serial=stack.lv, readonly=True,
        grants=(grant,)))


def loan_iqn(host: Host, stack: state.Stack, tag: lv_tags.LoanTag) -> str:
    """The target under which an LV is lent."""
    return names.loan_iqn(host.settings.target_prefix, stack.lv, tag.lv,
                          tag.generation)
