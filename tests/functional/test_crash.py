# SPDX-License-Identifier: Apache-2.0
"""cinder-volume dies by SIGKILL at any step; nothing is lost or left.

The points are named in lab/faulty.py. DMCLONE_LONG=1 adds those that are
less dangerous or covered by a neighbour.
"""
from __future__ import annotations

import http.client
import threading

from lab import LabError, look
from lab.attached import AttachedVolume
from lab.lab import LabNode
from tests.functional import base
from tests.functional import environment

BLOCKS = base.GIB // 4096

# One of each phase, or two that follow each other. The simulator takes every
# one; what only kernels show is the same for neighbours.
LENDER_BEFORE_COMMIT = (
    'peers.Prepare:after',
)
LENDER_BEFORE_COMMIT_LONG = (
    'rows.offer:before',
    'rows.offer:after',
    # Not when the tag of an earlier try is taken away.
    "group.retag:before:'add': ['dmclone.1.lent",
    "group.retag:after:'add': ['dmclone.1.lent",
    'group.flush:after',
    'dm.apply:after:dmclone-loan',
    'targets.ensure:before',
    'targets.ensure:after',
    'peers.Prepare:before',
    'dm.flush:before',
    'dm.flush:after',
    'rows.commit:before',
)
PREPARE = (
    'meta_group.retag:after',
)
PREPARE_LONG = (
    'group.create:before',
    'group.create:after',
    'meta_group.create:before',
    'meta_group.create:after',
    'initiator.login:before',
    'initiator.login:after',
    'dm.apply:after:dmclone-source',
    'dm.apply:after:dmclone-clone',
    'dm.apply:after:dmclone-front',
    'meta_group.retag:before',
    'group.flush:after',
)
# Reached one after the other by a relocation that was committed: before it is
# adopted, and when the server is on the LV itself but nothing says so yet.
BORROWER = (
    'group.retag:before:dmclone.1.own',
    'dm.apply:after:dmclone-front',
)
BORROWER_LONG = (
    'group.retag:before:dmclone.1.own',
    'group.retag:after:dmclone.1.own',
    'dm.message:before:enable_hydration',
    'dm.message:after:enable_hydration',
    'dm.clone_status:before',
    'dm.clone_status:after',
    'dm.apply:before:dmclone-source',
    'dm.apply:after:dmclone-source',
    'dm.apply:before:dmclone-front',
    'dm.apply:after:dmclone-front',
    'group.retag:before:dmclone.1.from',
    'group.retag:after:dmclone.1.from',
    'dm.message:after:disable_hydration',
    'dm.remove:before:dmclone-clone',
    'dm.remove:after:dmclone-clone',
    'dm.remove:after:dmclone-source',
    'initiator.logout:before',
    'initiator.logout:after',
    'meta_group.remove:before',
    'meta_group.remove:after',
    'rows.complete:before',
    # Also what there is after rows.complete, when nothing is left to do.
    'peers.notify:before',
)
RELEASE = (
    'targets.remove:after',
)
RELEASE_LONG = (
    'peers.Show:before',
    'peers.Show:after',
    'targets.remove:before',
    'targets.remove:after',
    'dm.remove:before:dmclone-loan',
    'dm.remove:after:dmclone-loan',
    'group.remove:before',
    'group.remove:after',
)


class CrashTest(base.FunctionalTest):
    """Each test takes one volume through all points of a phase."""

    def written(self, node: LabNode) -> tuple[str, base.Image]:
        """A detached volume with some blocks in it."""
        volume = self.volume(node)
        at = self.attach(volume, node)
        image = self.image()
        image.write(at, 1, 60, BLOCKS // 61)
        image.write(at, 0, 64)
        self.detach(at)
        return volume, image

    def start_attaching(self, attachment: str,
                        node: LabNode) -> threading.Thread:
        """Let a request run whose answer will not come."""
        def connect() -> None:
            try:
                self.lab.connect(attachment, node.number)
            except (LabError, OSError, http.client.HTTPException):
                pass
        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        return thread

    def assert_right(self, image: base.Image, at: AttachedVolume) -> None:
        self.assertEqual('', image.blocks_difference(at))

    def test_lender_dies_before_the_commit(self) -> None:
        volume, image = self.written(self.node1)
        attachment = self.lab.reserve(volume)
        points: tuple[str, ...] = LENDER_BEFORE_COMMIT
        if environment.LONG:
            points += LENDER_BEFORE_COMMIT_LONG
        for point in points:
            self.arm(self.node1, point)
            self.start_attaching(attachment, self.node2)
            self.wait_dead(self.node1)
            self.assertTrue(self.row(volume).provider_id.startswith('1'),
                            point)
            self.forget_requests()
            self.start_services(self.node1)
        # If nobody tried again, all of it would be undone.
        self.wait('the withdrawal',
                  lambda: self.row(volume).provider_id == '1')
        at = self.attach(volume, self.node2, attachment)
        self.assert_right(image, at)
        self.assertEqual('2', self.row(volume).generation)

    def test_borrower_dies_while_it_prepares(self) -> None:
        volume, image = self.written(self.node1)
        attachment = self.lab.reserve(volume)
        for point in PREPARE + (PREPARE_LONG if environment.LONG else ()):
            self.arm(self.node2, point)
            request = self.start_attaching(attachment, self.node2)
            self.wait_dead(self.node2)
            self.start_services(self.node2)
            # The home node gives up by itself.
            request.join()
            self.assertEqual('node1', self.row(volume).node, point)
        at = self.attach(volume, self.node2, attachment)
        self.assert_right(image, at)

    def test_lender_dies_at_the_commit(self) -> None:
        volume, image = self.written(self.node1)
        attachment = self.lab.reserve(volume)
        self.arm(self.node1, 'rows.commit:after')
        self.start_attaching(attachment, self.node2)
        self.wait_dead(self.node1)
        self.assertEqual('node2', self.row(volume).node)
        self.forget_requests()
        # The server is served although the lender is still away.
        at = self.attach(volume, self.node2, attachment)
        self.assert_right(image, at)
        image.write(at, 5, 50, BLOCKS // 51)
        self.wait_complete(volume)
        self.assert_right(image, at)
        # Only the release of the old copy waits for it.
        self.assertIn(f'volume-{volume}', look.volumes(self.node1))
        self.start_services(self.node1)

    def test_borrower_dies_after_the_commit(self) -> None:
        volume, image = self.written(self.node1)
        attachment = self.lab.reserve(volume)
        points = BORROWER_LONG if environment.LONG else BORROWER
        self.arm(self.node2, points[0])
        at = self.attach(volume, self.node2, attachment)
        for number, point in enumerate(points):
            self.wait_dead(self.node2)
            # The server goes on meanwhile.
            image.write(at, 100 + number, 20, BLOCKS // 29)
            if number + 1 < len(points):
                self.arm(self.node2, points[number + 1])
            self.start_mortal(point)
        self.wait_complete(volume)
        self.assert_right(image, at)

    def start_mortal(self, point: str) -> None:
        """Start the borrower; it may die at the next point at once."""
        self.node2.volume.start()
        try:
            self.node2.volume.wait_up()
        except LabError:
            self.assertFalse(self.node2.volume.running(), point)

    def test_lender_dies_while_it_releases(self) -> None:
        volume, image = self.written(self.node1)
        points = RELEASE_LONG if environment.LONG else RELEASE
        # An attach by itself passes none of these points on the lender.
        self.arm(self.node1, points[0])
        at = self.attach(volume, self.node2)
        for number, _ in enumerate(points):
            self.wait_dead(self.node1)
            if number + 1 < len(points):
                self.arm(self.node1, points[number + 1])
            self.node1.volume.start()
        self.node1.volume.wait_up()
        self.assert_right(image, at)
