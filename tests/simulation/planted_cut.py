# SPDX-License-Identifier: Apache-2.0
"""Mistakes about a volume that goes on in a copy on its own node.

See ``planted`` for those about one that moves.
"""

from __future__ import annotations

import itertools

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.reconcile import decision
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile import observed
from cinder_dmclone.relocation import live_migration
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import joint
from cinder_dmclone.stack import state
from tests.simulation import mistakes

bug = mistakes.bug


@bug('who is cut off is led to another volume', (joint, 'lagging'),
     where='story/birth behind')
def _anybody(copy, lender):
    return lender.of_kind(*names.WRITERS)


# So many looks at an LV take long enough for a write.
SLOWLY = 20


@bug('a flush reaches the copy only', (joint, 'lead_over'),
     where='story/cut')
def _no_joint(host, copy, lender):
    consumers.flush(host, lender)
    # Somebody writes meanwhile.
    for _ in range(SLOWLY):
        copy = inspect.refresh(host, copy.lv)
    for writer in lender.of_kind(*names.WRITERS):
        consumers.consume(host, copy, writer)


def _slowly(host, copy, lender, lead_over=joint.lead_over,
            tries=itertools.count()):
    if next(tries) % 4 < 3:
        raise exceptions.CommandTimeout(command='dmsetup resume', seconds=1)
    lead_over(host, copy, lender)


def _linear(host, stack):
    return stack.borrows_here


def _patient(known, lent, serve=loans.serve):
    found = serve(known, lent)
    return (decision.Decision(decision.Verdict.WAIT)
            if found.step is decision.Action.PAUSE else found)


bug('a read waits below the copy that could answer it',
    (clones, '_never_waits'), where='crash/birth waits/cut/before/1',
    also=((loans, 'serve', _patient),))(_linear)
bug('what a lender here lets fail is not waited for',
    (clones, '_never_waits'), where='crash/birth waits/cut/before/1')(_linear)


@bug('who writes what is frozen is cut off, not led over',
     (observed.Facts, 'goes_on_here'), where='story/cut',
     also=((joint, 'lead_over', _slowly),))
@property
def _nowhere(self):
    return False


@bug('a device belongs to the LV that has its name', (inspect, '_rests_on'),
     where='crash/cut/away/before/0')
def _by_name(consumer, tops, named):
    return named


@bug('copying begins while what is copied is written',
     (observed.Facts, 'lagging'), where='crash/cut/kill/after/0')
@property
def _never_lagging(self):
    return False


@bug('a joint is left', (observed.Facts, 'lagging'),
     where='crash/cut/kill/after/0')
@property
def _without_joint(self):
    return bool(self.lender and self.lender.of_kind(*names.WRITERS))


@bug('what others read is written', (state.Stack, 'frozen'),
     where='story/birth home')
def _never_frozen(self, offer):
    return False


@bug('a copy on the same node is a live migration', (rows.Row, 'migration'),
     where='crash/cut/kill/after/0',
     also=((live_migration, 'is_there', lambda *_: True),))
@property
def _migration(self):
    here = self.connected_at(self.node.partition('@')[0])
    return here[0] if self.offer and here else None
