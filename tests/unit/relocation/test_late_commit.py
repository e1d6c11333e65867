# SPDX-License-Identifier: Apache-2.0
"""A hand-over whose connection was lost at the COMMIT, which comes later."""

from __future__ import annotations

import contextlib
import functools
import typing
from unittest import mock

from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.service import connections
from oslo_db import exception as db_exc
from tests.unit.fake import mapped
from tests.unit import migration


class LateCommitTest(migration.MigrationTestCase):
    """Read in between, the row says that the commit was not made."""

    def setUp(self) -> None:
        super().setUp()
        self.migrate()
        self.cloud.settle()
        self.commit: typing.Callable[[], int] | None = None

    @contextlib.contextmanager
    def lost(self) -> typing.Iterator[None]:
        def update(values: dict[str, typing.Any], *rest: typing.Any) -> int:
            if 'host' not in values:
                return original(values, *rest)
            self.commit = functools.partial(original, values, *rest)
            raise db_exc.DBConnectionError(Exception('gone away'))
        original = volumes.RowStore._update_once
        with mock.patch.object(volumes.RowStore, '_update_once',
                               staticmethod(update)):
            yield
        self.assertIsNotNone(self.commit)
        self.assert_home(self.a)

    def assert_late(self, changed: int) -> None:
        """The database carries the COMMIT out now, and changes so much."""
        assert self.commit
        self.assertEqual(changed, self.commit())

    def look(self) -> None:
        self.a.process.loop.enqueue(self.volume)
        self.a.process.loop.run_once()

    def end(self) -> None:
        self.write(self.b, self.new)
        self.leave()
        self.assert_migrated()

    def claim(self) -> None:
        self.held(self.b, self.new)
        with self.lost():
            self.event(self.b, self.new)

    def test_the_server_goes_on_here(self) -> None:
        self.claim()
        self.look()
        self.write(self.a, self.old, 2)
        self.assert_late(0)
        # It was the one on the other node that wrote, after all.
        self.event(self.b, self.new)
        self.assert_home(self.b)
        self.end()

    def test_it_comes_before_the_front_is_opened(self) -> None:
        self.claim()
        self.assert_late(1)
        self.look()
        with self.assertRaises((mapped.Queued, mapped.Failed)):
            self.a.mapper.write(self.old, 2, 'on a stale copy')
        self.cloud.settle(3)
        self.end()

    def test_it_comes_while_the_front_is_opened(self) -> None:
        """The row was read, and the database has then lost the renewal."""
        self.claim()
        commit = self.commit
        assert commit
        with self.lost_renewal(lambda: self.assertEqual(1, commit())):
            self.look()
        with self.assertRaises((mapped.Queued, mapped.Failed)):
            self.a.mapper.write(self.old, 2, 'on a stale copy')
        self.cloud.settle(3)
        self.end()

    @contextlib.contextmanager
    def lost_renewal(self, before: typing.Callable[[], None]
                     ) -> typing.Iterator[None]:
        def update(*arguments: typing.Any) -> int:
            before()
            raise db_exc.DBConnectionError(Exception('gone away'))
        with mock.patch.object(volumes.RowStore, '_update_once',
                               staticmethod(update)):
            yield

    def leave_quietly(self) -> None:
        """The server has closed its disk here, and not written there."""
        self.a.mapper.close(self.old)
        with self.lost(), self.assertRaises(exceptions.RowChanged):
            connections.disconnect(self.a.service, self.volume,
                                   self.a.connector)

    def open_again(self) -> None:
        self.a.mapper.open(self.old)
        self.write(self.a, self.old, 2)
        self.assert_late(0)
        self.assert_home(self.a)

    def test_the_front_here_is_made_again(self) -> None:
        self.leave_quietly()
        self.look()
        self.open_again()

    def test_the_front_here_is_asked_for(self) -> None:
        """What is open and takes long is left to the reconciler's thread."""
        self.leave_quietly()
        self.a.targets.exports.clear()
        self.cloud.db.update_attachment(self.first, attach_status='attaching')
        connections.connect(self.a.service, self.volume, self.a.connector)
        self.open_again()

    def test_the_node_has_lost_power(self) -> None:
        self.leave_quietly()
        self.a.lose_power()
        self.a.start()
        self.open_again()
