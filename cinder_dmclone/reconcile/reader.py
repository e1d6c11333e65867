# SPDX-License-Identifier: Apache-2.0
"""Reads what decides about LVs: their stacks, and the rows that speak of them.
"""

from __future__ import annotations

import typing

from cinder_dmclone.database.rows import Row
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import offers
from cinder_dmclone.reconcile import paths
from cinder_dmclone.reconcile import views
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state
from cinder_dmclone.world import World


class Reader:
    """Remembers since when offers stand and views are unused, and what was
    written: no more.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._offers = offers.Offers()
        self._views = views.Views()
        self._written: set[LvUuid] = set()

    def rows(self, stacks: typing.Collection[state.Stack],
             *known: VolumeId) -> observed.Rows:
        """The rows that decide about stacks.

        The tags name the row's id, unless Cinder has exchanged the ids of two
        rows since: then it is among those of this node's volumes, if the LV
        is a volume. They are read before an LV is taken for anything less.

        A row of another node that names an LV is named by its tags: a lender
        gets one before the row names it, a copy is made with one. Looking for
        others would mean to read every volume there is.

        :param known: ids of rows that may be of these stacks
        """
        store, node = self._world.rows, self._world.settings.node
        found = {row.id: row for row in store.find({*known, *(
            volume for stack in stacks for volume in (
                VolumeId(stack.lv), *stack.volumes, *stack.borrowers))})}
        snapshots = self._snapshots(stacks, found)
        read = observed.Rows(found.values(), node, snapshots)
        unnamed = [stack.lv for stack in stacks if not read.named(stack)]
        if unnamed:
            found |= {row.id: row for row in store.homes(node, unnamed)}
            read = observed.Rows(found.values(), node, snapshots)
        return read

    def _snapshots(self, stacks: typing.Collection[state.Stack],
                   found: typing.Container[VolumeId]) -> list[SnapshotRow]:
        """Those that LVs are, or are to be.

        :param found: volumes: who else borrows is a snapshot that moves
        """
        wanted = {tag.snapshot for stack in stacks for tag in stack.tags.snaps}
        wanted |= {SnapshotId(borrower) for stack in stacks
                   for borrower in stack.borrowers if borrower not in found}
        return self._world.snapshots.find(wanted) if wanted else []

    def facts(self, stack: state.Stack, found: observed.Rows,
              stack_of: typing.Callable[[LvUuid], state.Stack | None]
              ) -> observed.Facts:
        """What is known of one stack, without what others may say.

        :param stack_of: gives that of another LV of this node, if it has it
        """
        node = self._world.settings.node
        row, rivals = observed.pick_row(stack, node, found.of(stack))
        now = self._world.clock.monotonic()
        snapshots = found.snapshots(stack)
        return observed.Facts(
            node, stack, row, rivals, borrowers=found.borrowers(stack),
            lender=paths.lender(stack, stack_of), snapshots=snapshots,
            forgotten=self._views.forgotten(stack, row, snapshots, now),
            overdue=self._offers.overdue(stack.lv, row, now),
            standing=self._offers.standing(stack.lv, row, now),
            let_down=self._offers.let_down(stack.lv, row, now),
            written=self._was_written(stack, row))

    def _was_written(self, stack: state.Stack, row: Row | None) -> bool:
        """What was written stays so, and is looked at once."""
        copy = stack.tags.copy
        if copy is None or stack.tags.bars_front or (
                row is None or row.deleted or row.unreadable
                or copy.generation >= row.generation):
            return False
        if stack.lv not in self._written and not clones.is_untouched(
                self._world.host, stack):
            self._written.add(stack.lv)
        return stack.lv in self._written

    def now(self, lv: LvUuid, volume: VolumeId,
            answers: observed.Answers) -> observed.Facts:
        """What is known of an LV at this moment.

        :param volume: id of a row that may be its
        :param answers: those of peers that were asked
        """
        def refresh(of: LvUuid) -> state.Stack:
            return inspect.refresh(self._world.host, of)

        stack = refresh(lv)
        return answers.beside(
            self.facts(stack, self.rows([stack], volume), refresh))
