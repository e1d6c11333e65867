# SPDX-License-Identifier: Apache-2.0
"""Nodes with two releases of the driver, of which one is upgraded meanwhile.

The former one is the last release before what is checked out, or the revision
that DMCLONE_UPGRADE_FROM names.
"""
from __future__ import annotations

import os
import pathlib
import typing
import unittest

from lab import former, look, virtualenv
from tests.functional import environment
from tests.functional import test_migration

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = test_migration.BLOCKS
_VARIABLE = 'DMCLONE_UPGRADE_FROM'


@environment.only_long
class UpgradeTest(test_migration.MigrationTestCase):
    """A volume goes from node 1 to node 2; one of them has the former."""

    venv: typing.ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        revision = os.environ.get(_VARIABLE) or former.release()
        if not revision:
            raise unittest.SkipTest(
                f'there is no release to upgrade from; {_VARIABLE}=REVISION '
                'takes a revision of this repository for one')
        super().setUpClass()
        cls.venv = former.provide(cls.the_lab(), revision)

    def use(self, node: LabNode, venv: pathlib.Path) -> None:
        """Change the release on a node as an operator does."""
        node.volume.stop()
        node.volume.use(venv)
        self.start_services(node)

    def downgrade(self, node: LabNode) -> None:
        """Begin with the former release on a node, and the new elsewhere."""
        self.addCleanup(self._as_it_was, node)
        self.use(node, self.venv)
        self.wait('the schedulers to know of both', lambda: self._versions()
                  == {virtualenv.VERSION, former.VERSION})

    def upgrade(self, node: LabNode) -> None:
        """Go on with the new release on a node."""
        self.use(node, self.lab.venv)

    def _versions(self) -> set[str]:
        """The releases that an operator sees at work."""
        found = self.lab.cinder(
            'GET', '/scheduler-stats/get_pools?detail=true')
        return {pool['capabilities']['dmclone_version']
                for pool in found['pools']}

    def _as_it_was(self, node: LabNode) -> None:
        if self.failed:
            self.restore()
            self.upgrade(node)

    def wait_left(self, volume: str) -> None:
        """Wait until node 1 has nothing of a volume any more."""
        self.wait('end of the old copy', lambda: (
            f'volume-{volume}' not in look.volumes(self.node1)))

    def hydrate(self, early: LabNode) -> None:
        """A server goes to node 2, and a node is upgraded meanwhile."""
        self.downgrade(early)
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 7, 24, BLOCKS // 25)
        self.upgrade(early)
        self.assert_hydrating(at)
        image.write(at, 11, 24, BLOCKS // 26)
        self.assert_holds(image, at)
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.wait_left(volume)

    def migrate_live(self, early: LabNode) -> None:
        """The same with a server that goes on writing."""
        self.downgrade(early)
        old, image, server = self.attached(self.node1)
        new = self.migrate(old, self.node2)
        self.hold(new)
        image.write(old, 7, 20, BLOCKS // 21)
        self.assertFalse(self.has_moved(new))
        image.write(new, 11, 20, BLOCKS // 22)
        self.assertTrue(self.has_moved(new))
        self.upgrade(early)
        self.finish(old, new, server)
        self.assert_holds(image, new)
        self.wait_left(new.volume)

    def test_the_lender_is_upgraded(self) -> None:
        self.hydrate(self.node1)

    def test_the_borrower_is_upgraded(self) -> None:
        self.hydrate(self.node2)

    def test_a_server_leaves_the_former_release(self) -> None:
        self.migrate_live(self.node1)

    def test_a_server_comes_to_the_former_release(self) -> None:
        self.migrate_live(self.node2)
