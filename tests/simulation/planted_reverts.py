# SPDX-License-Identifier: Apache-2.0
"""Mistakes about a volume that goes back to its snapshot.

See ``planted_births`` for those about new volumes.
"""

from __future__ import annotations

from cinder_dmclone import names
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import revert
from cinder_dmclone.stack import lv_tags
from tests.simulation import mistakes

bug = mistakes.bug


def _sealed_late(world, row, lent, finish=revert.finish, seal=revert.seal):
    made = finish(world, row, lent)
    seal(world, row)
    return made


@bug('a server has what is reverted until it was', (revert, 'seal'),
     where='story/revert used', also=((revert, 'finish', _sealed_late),))
def _not_sealed(world, row):
    """Later."""


@bug('what is reverted is erased before the commit', (revert, 'finish'),
     where='story/revert')
def _erased(world, row, lent, finish=revert.finish):
    world.host.group.remove(names.data_lv(row.lv))
    return finish(world, row, lent)


@bug('where the volume goes is written down as where it went',
     (lender, 'mark_replaced'), where='story/revert parted')
def _without_proof(world, row):
    assert row.offer
    past = lv_tags.PastTag(row.generation + 1, row.id, row.offer.node,
                           row.offer.lv)
    world.host.group.retag(names.data_lv(row.lv),
                           add=[lv_tags.print_tag(past)])
    world.host.group.flush()


@bug('what was reverted does not know it', (lender, 'mark_replaced'),
     where='story/revert')
def _unmarked(world, row):
    """Nothing is written down."""
