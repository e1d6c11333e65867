# SPDX-License-Identifier: Apache-2.0
"""How a mistake is planted in the product's code, and where it is found."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from unittest import mock

from cinder_dmclone.location import LvUuid
from cinder_dmclone.reconcile import erasures
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import teardown

# Of an attribute, or of an entry of a table.
Change = tuple[typing.Any, typing.Any, typing.Any]


@dataclasses.dataclass(frozen=True)
class Bug:
    """A planted mistake."""

    name: str
    changes: tuple[Change, ...]
    where: str
    first: int

    def schedules(self) -> typing.Iterator[str]:
        """Those in which it should show soon."""
        return (f'{self.where}/{number}' for number in range(
            self.first, self.first + WITHIN))

    @contextlib.contextmanager
    def planted(self) -> typing.Iterator[None]:
        with contextlib.ExitStack() as stack_:
            for where, name, new in self.changes:
                stack_.enter_context(
                    mock.patch.dict(where, {name: new})
                    if isinstance(where, dict)
                    else mock.patch.object(where, name, new))
            yield


BUGS: dict[str, Bug] = {}

# A mistake has to be found in so many schedules.
WITHIN = 300


def unasked(self: erasures.Erasures, lv: LvUuid,
            may_go: typing.Callable[[], bool]) -> bool:
    """Overwrite an LV without asking whether it may go.

    In place of ``Erasures.erase``, which is the second guard of each copy.
    """
    teardown.erase(self._host, inspect.refresh(self._host, lv), lambda: True)
    return True


UNASKED = ((erasures.Erasures, 'erase', unasked),)


def bug(name: str, *places: tuple[typing.Any, typing.Any], where: str = 'seed',
        first: int = 0, also: tuple[Change, ...] = ()) -> typing.Callable[
            [typing.Any], typing.Any]:
    """Plant the decorated function instead of one of the product's.

    :param where: the kind of schedules in which it is looked for
    :param first: the number of the first of them
    :param also: other changes, where two things guard against one mistake
    """
    def plant(function: typing.Any) -> typing.Any:
        BUGS[name] = Bug(name, (*((*at, function) for at in places), *also),
                         where, first)
        return function
    return plant
