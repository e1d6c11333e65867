# SPDX-License-Identifier: Apache-2.0
"""Mistakes about a volume that several servers have.

See ``planted`` for those about one server.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import rows
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import home
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import cut
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import room
from cinder_dmclone.service import answers
from cinder_dmclone.service import attach_policy
from cinder_dmclone.stack import inspect
from tests.simulation import mistakes

bug = mistakes.bug


def _careless_hand_over(service, request):
    row = service.row(request.volume)
    if row.owner == request.copy:
        return
    purpose = rows.LiveMigration(row.migration.id)
    lender.seal(service.world, row, purpose, request.copy.node)
    coordinator.commit(service.world, row, request.pool, purpose)


_ANYBODY = (answers.ANSWERS, messages.HandOver, _careless_hand_over)


@bug('a server joins one that is being live-migrated',
     (rows.Row, 'shared'), where='share/home/attach2 a/live b success',
     also=(_ANYBODY,))
@property
def _alone(self):
    return False


@bug('a live migration waits for ever if another server has joined',
     (rows.Row, 'shared'), where='share/home/attach2 a/live b success')
@property
def _never_shared(self):
    return False


@bug('one of several servers takes the volume with it',
     (attach_policy, '_migrates'), where='story/two live', also=(_ANYBODY,))
def _first_of_all(others, waiting, host):
    return any(other.instance == waiting.instance and other.host == host
               for other in others)


@bug('what hydrates is served here and elsewhere',
     (attach_policy, 'mixes'), where='story/two hydrating')
def _mixed(how, row, host, here, elsewhere):
    return ''


@bug('the target of a volume goes with its old copy',
     (inspect, '_collect_exports'), where='story/two cut')
def _by_name(host, found, only, owners, collect=inspect._collect_exports):
    collect(host, found, only, {})


@bug('the export of a host ends with its first server',
     (attach_policy, 'goes_on'), where='story/two live')
def _counts_here(row, connector, host):
    return (connector.get('host') == host
            and len(row.connected_at(host)) > 1)


@bug('who has just been answered is forgotten', (attach_policy, 'goes_on'),
     where='share/outside/attach2 x/detach')
def _counts_known(row, connector, host, goes_on=attach_policy.goes_on):
    known = tuple(a for a in row.attachments if a.connected)
    return goes_on(dataclasses.replace(row, attachments=known), connector,
                   host)


@bug('a server that moves in place is taken for one with an offer',
     (home, '_in_place'), where='share/here/live b success/live2 c success')
def _offered(attachment, row, host, in_place=home._in_place):
    return in_place(attachment, dataclasses.replace(row, multiattach=False),
                    host)


@bug('several writers are led over one after the other',
     (cut, '_require_possible'), where='share/two/snap/see')
def _one_by_one(world, row, stack, at_once):
    room.require(world.host, world.host.group.report(), stack.data.size)
