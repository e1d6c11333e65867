# SPDX-License-Identifier: Apache-2.0
"""Mistakes about who needs whose LV, with a second volume.

See ``planted`` for those about one that moves.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile import home
from cinder_dmclone.reconcile import old_copy
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import teardown
from tests.simulation import mistakes

bug = mistakes.bug


@bug('what a deleted volume had is needed by nobody', (old_copy, 'kept'),
     where='story/birth chain')
def _unkept(known, row, kept=old_copy.kept):
    return None if row.deleted else kept(known, row)


@bug('a deletion ends all loans', (teardown, 'close'), where='story/birth')
def _end_all(host, stack, close=teardown.close):
    close(host, stack)
    for tag in stack.tags.lent:
        host.targets.remove(exports.loan_iqn(host, stack, tag))
        host.dm.remove(str(names.loan(stack.lv, tag.lv)))
        host.group.retag(names.data_lv(stack.lv),
                         remove=[lv_tags.print_tag(tag)])


@bug('a loan to another volume is taken for a move of this one',
     (home, 'stale_loan'), where='story/birth away')
def _own_loans(known, row, tag, stale=home.stale_loan):
    return stale(known, row, dataclasses.replace(tag, volume=row.id))


@bug('a loan has the generation of the lender',
     (lv_tags.Tags, 'generation'), where='story/birth')
@property
def _any_generation(self):
    return max([tag.generation - 1 for tag in (*self.lent, self.copy) if tag]
               + [tag.generation for tag in (self.own,) if tag], default=0)


@bug('where the volume went is forgotten with its loan',
     (old_copy, '_forget'), where='crash/birth stays/restore/before/0')
def _forgotten(known, row, tag, forget=old_copy._forget):
    return dataclasses.replace(forget(known, row, tag), step=Action.REVOKE)
