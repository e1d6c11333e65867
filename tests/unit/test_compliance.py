# SPDX-License-Identifier: Apache-2.0
"""The methods that Cinder calls: each is there, and on a page."""

from __future__ import annotations

import inspect
import pathlib
import re
import typing

from tests.unit import base
from tests.unit.fake import database  # noqa: F401  registers the objects

from cinder.interface import volume_consistencygroup_driver  # noqa: E402
from cinder.interface import volume_driver  # noqa: E402
from cinder.interface import volume_group_driver  # noqa: E402
from cinder.interface import volume_manageable_driver  # noqa: E402
from cinder.interface import volume_snapshot_revert  # noqa: E402
from cinder.interface import volume_snapshotmanagement_driver  # noqa: E402
from cinder.volume import driver as cinder_driver  # noqa: E402

from cinder_dmclone import driver  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / 'doc/source/contributor/compliance.rst'
# Nothing in Cinder is said about these but by its base class.
BASE = ('accept_transfer', 'backup_use_temp_snapshot',
        'create_cloned_volume', 'create_export',
        'create_export_snapshot', 'ensure_export',
        'initialize_connection_snapshot', 'remove_export',
        'remove_export_snapshot', 'terminate_connection_snapshot',
        'validate_connector')


def interfaces() -> typing.Iterator[type]:
    """What Cinder's documentation calls the interface of a driver."""
    for module in (volume_consistencygroup_driver, volume_driver,
                   volume_group_driver, volume_manageable_driver,
                   volume_snapshot_revert, volume_snapshotmanagement_driver):
        yield from (found for _, found in inspect.getmembers(
            module, inspect.isclass) if found.__module__ == module.__name__)


def methods() -> dict[str, typing.Any]:
    """Each method that Cinder may call."""
    return {name: found for interface in interfaces()
            for name, found in vars(interface).items()
            if inspect.isfunction(found)}


class SignatureTest(base.TestCase):

    def test_what_the_driver_has_is_called_like_this(self) -> None:
        """``abc`` compares nothing but names."""
        own = vars(driver.DMCloneVolumeDriver)
        wanted = methods() | {
            name: getattr(cinder_driver.VolumeDriver, name) for name in BASE}
        checked = 0
        for name in own.keys() & wanted.keys():
            with self.subTest(name):
                self.assertEqual(self.names(wanted[name]),
                                 self.names(own[name]))
                checked += 1
        self.assertGreater(checked, 20)

    @staticmethod
    def names(function: typing.Any) -> list[str]:
        """Of the parameters that have to be given.

        Cinder's interface and its manager do not agree about the others
        (``initiator_data`` of ``initialize_connection``, ``force`` of
        ``terminate_connection``).
        """
        return [name for name, parameter in inspect.signature(
            function).parameters.items()
            if parameter.default is parameter.empty]


class PageTest(base.TestCase):

    def test_each_method_is_on_the_page(self) -> None:
        terms = ' '.join(line for line in PAGE.read_text().splitlines()
                         if line.startswith('``'))
        found = re.findall(r'``(\w+)``', terms)
        # Older releases have fewer.
        self.assertEqual(set(), set(methods()) - set(found))
        self.assertEqual(len(set(found)), len(found))

    def test_each_test_is_there(self) -> None:
        text = ' '.join(line for line in PAGE.read_text().splitlines()
                        if line.startswith('   '))
        modules = {path.stem for path in (ROOT / 'tests').rglob('test_*.py')}
        tempest = ''.join((ROOT / 'tests' / path).read_text() for path in (
            'tempest/driver.txt', 'tempest_nova/wanted.txt'))
        for name in re.findall(r'``(\w+)``', text):
            with self.subTest(name):
                self.assertTrue(name in modules or f'.{name}' in tempest)
