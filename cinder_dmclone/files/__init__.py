# SPDX-License-Identifier: Apache-2.0
"""What the systems of a node read of ours, and where they read it.

Nothing but the standard library is imported: a host whose Cinder runs in a
container has this package alone.
"""

from __future__ import annotations

import collections.abc
import dataclasses
from importlib import resources
import pathlib
import re

UNITS = 'etc/systemd/system'
_UNIT = f'{UNITS}/cinder-dmclone.service'
_ROOTWRAP = 'etc/cinder/rootwrap.d/cinder-dmclone.filters'

# Where udev reads rules, the first first (udev(7)); /lib where it is not a
# link to /usr/lib.
RULE_FOLDERS = ('etc/udev/rules.d', 'run/udev/rules.d',
                'usr/local/lib/udev/rules.d', 'usr/lib/udev/rules.d',
                'lib/udev/rules.d')
RULES = '*-cinder-dmclone.rules'
# The rule runs after that of the device mapper, which distributions number
# differently, and before the first one that reads a device.
_NUMBERS = {'10-dm.rules': 11, '55-dm.rules': 56}


class CannotInstall(Exception):
    """Why nothing was changed, in one line, and what to do."""


@dataclasses.dataclass(frozen=True)
class File:
    """A file as it has to be.

    :ivar place: relative to the root
    :ivar target: where it leads, if it is a link
    """

    place: str
    text: str = ''
    target: str = ''


def of_node(root: pathlib.Path,
            command: str) -> collections.abc.Iterator[File]:
    """All files of a node; a unit that is new is enabled, too.

    An operator may have disabled one that is there.

    :param root: the directory that is the node's root
    :param command: the path of ``cinder-dmclone`` on the node
    :raises CannotInstall: if the number of the udev rule cannot be told
    """
    yield rootwrap()
    yield File(f'etc/udev/rules.d/{_number(root)}-cinder-dmclone.rules',
               _text('cinder-dmclone.rules'))
    yield File('etc/modules-load.d/cinder-dmclone.conf',
               _text('modules-load.conf'))
    # multipath.conf(5): read after multipath.conf itself.
    yield File('etc/multipath/conf.d/cinder-dmclone.conf',
               _text('multipath.conf'))
    if not (root / _UNIT).exists():
        # Before the unit: whoever is interrupted goes on here.
        yield File(f'{UNITS}/multi-user.target.wants/cinder-dmclone.service',
                   target=f'/{_UNIT}')
    yield File(_UNIT, re.sub('(?m)^(ExecStart=|ExecStop=.* )cinder-dmclone ',
                             rf'\g<1>{command} ',
                             _text('cinder-dmclone.service')))


def rootwrap() -> File:
    """What the environment of cinder-volume needs, a container perhaps."""
    return File(_ROOTWRAP, _text('cinder-dmclone.filters'))


def other_rules(root: pathlib.Path,
                place: str) -> collections.abc.Iterator[pathlib.Path]:
    """Our rule under other numbers, as an earlier installation left it."""
    name = pathlib.PurePath(place).name
    for folder in _rule_folders(root):
        for path in sorted(folder.glob(RULES)):
            if path.name != name:
                yield path


def _rule_folders(root: pathlib.Path) -> list[pathlib.Path]:
    # A link, as /lib mostly is, leads to one of the others, or out of an
    # image.
    return [root / folder for folder in RULE_FOLDERS
            if not (root / folder).parents[1].is_symlink()]


def _number(root: pathlib.Path) -> int:
    for name, number in _NUMBERS.items():
        if any((folder / name).exists() for folder in _rule_folders(root)):
            return number
    raise CannotInstall(
        f'no udev folder below {root} has {" or ".join(_NUMBERS)}, by which '
        'our rule is numbered: install dmsetup (Debian, Ubuntu) or '
        'device-mapper (others) there first')


def _text(name: str) -> str:
    return (resources.files(__name__) / name).read_text()
