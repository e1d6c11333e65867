# SPDX-License-Identifier: Apache-2.0
"""What runs in a server: it writes, flushes, reads and discards."""

from __future__ import annotations

import contextlib
import typing

from cinder_dmclone.location import Location
from cinder_dmclone import names
from tests.simulation import leads
from tests.simulation import truth as truth_module
from tests.unit.fake import mapped
from tests.unit.fake import storage

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module
    from tests.simulation import outside

Violation = truth_module.Violation

# Seconds for which a read may wait for a lender that has nothing to give any
# more: a look at the hydration, a lock, a swap.
FROZEN_SECONDS = 120.0


class Server:
    """A server's disk, opened.

    :ivar may_fail: it runs on another node as well. Whichever loses the
        race for the volume may see errors, and reads what was there before
    """

    def __init__(self, truth: truth_module.Truth, node: cloud_module.Node,
                 path: str) -> None:
        self.truth = truth
        self.node = node
        self.path = path
        self.running = False
        self.may_fail = False
        self.kernel = node.kernel
        self.name = node.mapper.named(path)
        self._open_device()
        self.opened = True

    def _open_device(self) -> None:
        self.node.mapper.open(self.path)

    def _close_device(self) -> None:
        self.node.mapper.close(self.path)

    @property
    def here(self) -> Location:
        return leads.to(self.node, self.name)

    @property
    def host(self) -> outside.Host:
        """Where the server runs."""
        return self.node

    @property
    def alive(self) -> bool:
        """Until the power goes; its disk goes with it."""
        return self.kernel.alive

    def close(self) -> None:
        self.running = False
        if self.alive and self.opened:
            self._close_device()
        self.opened = False

    # -- I/O; each answers whether it was carried out -----------------------

    def write(self, number: int) -> bool:
        value = self.truth.fresh(number)
        done = self._io(lambda: self.node.mapper.write(
            self.path, number, value))
        if done:
            self.truth.cloud.note(f'wrote {value}')
            self._acknowledged('write', number, value)
        return done

    def _acknowledged(self, what: str, number: int, value: str) -> None:
        if not leads.is_volume(self.truth, self.here):
            raise Violation(
                'I2 writer', f'a {what} was acknowledged on {self.here}, '
                f'{self.truth.owner} is the volume')
        self.truth.wrote(number, value, self.node.name)

    def flush(self) -> bool:
        """Through a closed gate it is about nothing: none was written."""
        seen = self.truth.snapshot()
        done = self._io(lambda: self.node.mapper.flush(self.path))
        if done and leads.is_volume(self.truth, self.here):
            self.truth.cloud.note('flushed')
            self.truth.flushed(seen)
        return done

    def discard(self, number: int) -> bool:
        """It reads what it discards as before, or as zeros; never of others.

        What goes back to a pool was written to the volume, as zeros.
        """
        given: list[bool] = []
        done = self._io(lambda: given.append(
            self.node.mapper.discard(self.path, number)))
        if done and any(given):
            self.truth.cloud.note(f'discarded {number}')
            self._acknowledged('discard', number, storage.ZEROS)
        return done

    def read(self, number: int) -> bool:
        found: list[str] = []
        begun = self.truth.regions[number].last
        waiting = Waiting(self, number)

        def attempt() -> None:
            found.append(waiting.read())
        with waiting.ended():
            done = self._io(attempt, waiting)
        if done and not self.may_fail:
            self.truth.cloud.note(f'read {found[0]}')
            self.truth.read(number, found[0], f'read on {self.node.host}',
                            begun)
        return done

    def _io(self, attempt: typing.Callable[[], None],
            waiting: Waiting | None = None) -> bool:
        scheduler = self.truth.cloud.scheduler
        rejected, pause = self._rejected(), 0.5
        while True:
            scheduler.point()
            if not (self.alive and self.opened):
                return False
            if self._rejected() > rejected:
                return self._failed('a write that was held')
            try:
                attempt()
                return True
            except mapped.Queued:
                if waiting:
                    waiting.check()
                scheduler.sleep(pause)
                pause = min(2 * pause, 30.0)
            except mapped.Failed as error:
                if waiting and waiting.given_up:
                    return False
                return self._failed(str(error))

    def _rejected(self) -> int:
        hold = self.node.mapper.mapped.get(str(names.hold(self.here.lv)))
        return hold.rejected if hold else 0

    def _failed(self, what: str) -> bool:
        if not (self.may_fail or self.truth.meddled):
            raise Violation('I6 error', 'I/O error for the server on '
                            f'{self.node.host}: {what}')
        return False


class Waiting:
    """A read: once it waits in a source, it waits there.

    Its region may be written meanwhile, and what it went through may not
    change its table.
    """

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._number = number
        self._mapper = server.node.mapper
        self._through: list[mapped.Mapped] = []
        self._needless: float | None = None
        self._arrived = server.truth.arrived(server.here, number)

    def read(self) -> str:
        through = list(self._through)
        try:
            if through and all(
                    self._mapper.mapped.get(passed.name) is passed
                    for passed in through):
                return self._mapper.read_on(through, self._number)
            return self._mapper.read(self._server.path, self._number)
        except mapped.Queued as waits:
            self._wait(waits.through)
            raise

    def _wait(self, through: list[mapped.Mapped]) -> None:
        """Keep what a read went through from changing, but not the last.

        A multipath device takes back what waits in it.
        """
        for passed in self._through[:-1]:
            passed.stuck -= 1
        if self._through:
            self._mapper.waits.remove((self._through, self._number))
        for passed in through[:-1]:
            passed.stuck += 1
        if through:
            self._mapper.waits.append((through, self._number))
        self._through = through

    @property
    def given_up(self) -> bool:
        """Whether what it reads is lost, and an operator has said so.

        Its region may have been written since it began.
        """
        return not self._arrived and self._server.truth.given_up(
            self._server.here)

    @contextlib.contextmanager
    def ended(self) -> typing.Iterator[None]:
        try:
            yield
        finally:
            self._wait([])

    def check(self) -> None:
        """Nobody waits for a lender that is not needed, or was given up."""
        cloud, now = self._server.truth.cloud, self._server.truth.cloud.clock
        row = cloud.row(self._server.truth.volume)
        clone = self._mapper.mapped.get(str(names.clone(
            self._server.here.lv)))
        process = self._server.node.process
        hold = str(names.hold(self._server.here.lv))
        if (clone is None or row.owner != self._server.here or row.offer
                or hold in self._mapper.mapped
                or not process.serving or not process.alive
                or cloud.tables.silent
                or len(clone.copied) < mapped.regions(clone.table.length)
                and not self.given_up):
            self._needless = None
        elif self._needless is None:
            self._needless = now.monotonic()
        elif now.monotonic() - self._needless > FROZEN_SECONDS:
            raise Violation('I6 frozen', 'a read waits for a lender of whom '
                            'nothing is needed, or to be had: '
                            f'{self._server.name}')
