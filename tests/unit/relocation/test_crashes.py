# SPDX-License-Identifier: Apache-2.0
"""A crash of either side before and after every change of a relocation.

A crash before a call that only looks, or after a change, is a crash before
the next change; it is left out, but for changes that the other node knows of
then: those of a row, and messages. Every scenario goes on as Nova does: the
attach call is repeated until it succeeds, then the server writes.
"""

from __future__ import annotations

from tests.unit import base
from tests.unit.fake.bomb import Bomb
from tests.unit.fake import ports

LATER = 'written on b'
# One crash of so many; the simulator takes others.
STEP = 1 if base.LONG else 3


class CrashTest(base.CloudTestCase):
    """One scenario each, repeated until the crash would come after it."""

    def every_crash(self, crash: str, victim: str, hook: str) -> None:
        at, more, failures = 0, True, []
        while more:
            node = {'a': self.a, 'b': self.b}[victim]
            bomb = Bomb(getattr(node, crash), at,
                        ('rows', 'peers') if hook == 'after' else ())
            setattr(self.cloud, hook, bomb)
            try:
                self.scenario()
            except Exception as error:
                failures.append(f'change {at}, {bomb.where}: {error!r}')
            more = bomb.where is not None
            at += STEP
            self.cloud.db.close()
            self.build()
        if failures:
            self.fail('\n'.join(failures))
        self.assertGreater(at, 5)

    def scenario(self) -> None:
        attachment = self.cloud.reserve(self.volume)
        path = self.attach_at_last(attachment)
        self.cloud.restart()
        data = list(base.DATA)
        data[2] = LATER
        self.b.mapper.open(path)
        self.b.mapper.write(path, 2, LATER)
        self.b.mapper.flush(path)
        self.assert_data(self.b, path, data)
        self.cloud.complete(self.volume, attachment)
        for _ in range(3):
            self.cloud.settle()
            self.cloud.restart()
        row = self.cloud.row(self.volume)
        self.assertEqual(self.b.name, row.node)
        self.assert_data(self.b, path, data)
        self.assert_settled(data)

    def attach_at_last(self, attachment: str) -> str:
        """Repeat the call as Nova does, and start what has died."""
        failure: BaseException | None = None
        for _ in range(5):
            try:
                return self.cloud.connect(self.volume, attachment, self.b)
            except (ports.Killed, Exception) as error:
                failure = error
                self.cloud.restart()
                self.cloud.tick()
        raise AssertionError('no attempt succeeded') from failure

    def test_service_of_the_lender_before(self) -> None:
        self.every_crash('kill', 'a', 'before')

    def test_service_of_the_lender_after(self) -> None:
        self.every_crash('kill', 'a', 'after')

    def test_service_of_the_borrower_before(self) -> None:
        self.every_crash('kill', 'b', 'before')

    def test_service_of_the_borrower_after(self) -> None:
        self.every_crash('kill', 'b', 'after')

    def test_power_of_the_lender_before(self) -> None:
        self.every_crash('lose_power', 'a', 'before')

    def test_power_of_the_lender_after(self) -> None:
        self.every_crash('lose_power', 'a', 'after')

    def test_power_of_the_borrower_before(self) -> None:
        self.every_crash('lose_power', 'b', 'before')

    def test_power_of_the_borrower_after(self) -> None:
        self.every_crash('lose_power', 'b', 'after')
