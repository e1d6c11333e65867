# SPDX-License-Identifier: Apache-2.0
"""The rows of unit tests in the database of a fleet."""
from __future__ import annotations

import functools
import typing

import sqlalchemy as sa

from cinder_dmclone.releases import models
from lab.fleet import ELSE, FLEET, NODES
from tests.unit.fake import database as fake


def of_others(method: typing.Callable[..., typing.Any]
              ) -> typing.Callable[..., typing.Any]:
    """Mark what a method sends as none of the driver's."""
    @functools.wraps(method)
    def call(self: Database, *arguments: typing.Any,
             **named: typing.Any) -> typing.Any:
        before, self.end = self.end, ELSE
        try:
            return method(self, *arguments, **named)
        finally:
            self.end = before
    return call


class Database(fake.Database):
    """The rows of one test, beside those of the fleet."""

    end = ''

    def __init__(self) -> None:
        sa.event.listen(fake.engine(), 'before_cursor_execute', self._mark,
                        retval=True)
        super().__init__()

    def close(self) -> None:
        super().close()
        if sa.event.contains(fake.engine(), 'before_cursor_execute',
                             self._mark):
            sa.event.remove(fake.engine(), 'before_cursor_execute',
                            self._mark)

    def _mark(self, connection: typing.Any, cursor: typing.Any,
              statement: str, parameters: typing.Any, *rest: typing.Any
              ) -> tuple[str, typing.Any]:
        return statement + self.end, parameters

    @of_others
    def clear(self) -> None:
        with fake.engine().begin() as connection:
            for table in fake.TABLES[:4]:
                connection.execute(sa.delete(table).where(
                    table.id < FLEET))
            connection.execute(sa.delete(models.Service).where(
                models.Service.id > NODES))
            initiators = models.DriverInitiatorData
            connection.execute(sa.delete(initiators).where(
                initiators.initiator.not_like('%fleet%')))

    volume = of_others(fake.Database.volume)
    update = of_others(fake.Database.update)
    destroy = of_others(fake.Database.destroy)
    snapshot = of_others(fake.Database.snapshot)
    attachment = of_others(fake.Database.attachment)
    update_attachment = of_others(fake.Database.update_attachment)
    drop_attachment = of_others(fake.Database.drop_attachment)
    service = of_others(fake.Database.service)
    all = of_others(fake.Database.all)
