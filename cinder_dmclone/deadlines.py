# SPDX-License-Identifier: Apache-2.0
"""How long a call may take: who waits for whom, in one table.

Cinder's API gives a call of the driver ``rpc_response_timeout``, 60 seconds
by default. Whoever waits gives what it waits for less than it has itself: a
refusal then arrives, and what was begun is undone before anybody gives up.
What takes longer runs in the background (``reconcile/schedule.py``). How
long kernel, iscsid, LVM and udev take is told where they are asked
(``host``, ``privileged``)::

    seconds                          who waits
    60  rpc_response_timeout         Cinder's API; a node that asked the home
     |                               node to connect or disconnect
     +- 45  CALL                     who called the driver, and who wants the
     |   |                           lock of a volume meanwhile
     |   +- 25  PREPARE              the home node, for the copy to be built
     |   |   +- 15  LOGIN            the borrower, for its lender
     |   |   +- 20  TURN             the borrower, for others that take room
     |   |   +-  4  HOLES            the borrower, for what it need not copy
     |   +- 10  QUERY                a node that asks another a question, or
     |   |                           several at once
     |   +- 10  HYDRATES             a second server, for what hydrates
     |   +- 15  PORTION              an operator's command, for an erasure that
     |   |                           it stops
     |   +-  5  ROW                  a change, for a row that another
     |   |                           transaction has locked
     |   +-  5  SETTLE               a change whose answer was lost
     |   +- 20  TURN                 a change of the volume group, for those
     |   |                           before it
     |   +-  5  LOCK                 a thread of the reconciler, a short
     |                               request of another node
     |   +-  1  OPENER               the seal, for whoever looks at all devices
     +- 30  HAND_OVER                the node where a server writes already,
                                     for gate, flush and commit
    150  PATIENCE                    who keeps nobody waiting, for a report of
                                     LVM's: a command, cinder-volume while it
                                     starts, the reconciler's look at all LVs;
                                     anybody else waits 30 for it
"""

from __future__ import annotations

# Parts of rpc_response_timeout. The rest of a call is for the API's own work.
CALL_PART = 45 / 60
HAND_OVER_PART = 30 / 60
QUERY_PART = 10 / 60
HOLES_PART = 4 / 60

# A part of a call (``Settings.budget``): the rest is for sealing, the commit,
# and for undoing.
PREPARE_PART = 25 / 45
# The same, for one more try after it.
HYDRATES_PART = 10 / 45

LOGIN_SECONDS = 15.0
HOLES_SECONDS = 3.0
PORTION_SECONDS = 15.0
TURN_SECONDS = 20.0
LOCK_SECONDS = 5.0
ROW_SECONDS = 5.0
SETTLE_SECONDS = 5.0
OPENER_SECONDS = 1.0
# A removal has LVM's lock while a thin volume gives its blocks back, which may
# take two minutes (``privileged/lvm.py``).
PATIENCE_SECONDS = 150.0
# Nobody waits for a snapshot to be made, or a volume to be extended; both wait
# for a live migration.
MIGRATION_SECONDS = 60.0
