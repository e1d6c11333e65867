# SPDX-License-Identifier: Apache-2.0
"""The way to a lender is looked after while the database is away."""

from __future__ import annotations

from cinder_dmclone import exceptions
from tests.unit import test_activation
from tests.unit.fake import mapped


class AwayTest(test_activation.HydratingCase):
    """A volume on b hydrates from a, which was rebooted; b has logged out."""

    def setUp(self) -> None:
        super().setUp()
        self.a.lose_power()
        self.cloud.lose_paths()
        self.b.initiator.sessions_.clear()
        self.boot(self.a)
        self.enterContext(self.cloud.db.away())

    def look(self) -> None:
        with self.assertRaises(exceptions.DatabaseAway):
            self.b.process.loop.run_once(everything=True)

    def test_a_lender_that_is_back_is_read(self) -> None:
        with self.assertRaises((mapped.Queued, mapped.Failed)):
            self.assert_data(self.b, self.path)
        self.look()
        self.assert_data(self.b, self.path)
        # Should it go away again, servers wait.
        source, = (found for name, found in self.b.mapper.mapped.items()
                   if '-source-' in name)
        self.assertTrue(source.table.queues)

    def test_nothing_else_is_done(self) -> None:
        before = self.state()
        for _ in range(2):
            self.look()
            self.assertEqual(before, self.state())

    def state(self) -> object:
        return [(set(node.mapper.mapped), {
            name: lv.tags for name, lv in node.group.volumes.items()})
            for node in self.cloud.nodes.values()]
