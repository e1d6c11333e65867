# SPDX-License-Identifier: Apache-2.0
"""Mistakes about volumes that are taken out of Cinder."""

from __future__ import annotations

from cinder_dmclone import names
from cinder_dmclone.service import manage
from cinder_dmclone.stack import lv_tags
from tests.simulation import mistakes

bug = mistakes.bug


@bug('what hydrates is unmanaged', (manage, '_need'), where='story/unmanage')
def _nothing(stack, hydrates):
    return ''


@bug('what is unmanaged keeps the name of a volume', (manage, 'hand_back'),
     where='story/unmanage')
def _nameless(service, row):
    name = names.data_lv(row.lv)
    tags = service.host.group.report().lvs[name].tags
    service.host.group.retag(name, remove=lv_tags.ours(tags))
    service.host.group.flush()
