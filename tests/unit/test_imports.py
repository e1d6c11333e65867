# SPDX-License-Identifier: Apache-2.0
"""Every module can be imported by itself, as services and tools do."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil

import cinder_dmclone
from tests.unit import base
from tests.unit.fake import database  # noqa: F401  registers the objects

NEED_NOVA = {f'cinder_dmclone.nova.{name}'
             for name in ('api', 'filters', 'weights')}


class ImportTest(base.TestCase):

    def test_all_modules(self) -> None:
        found = [module.name for module in pkgutil.walk_packages(
            cinder_dmclone.__path__, 'cinder_dmclone.')]
        self.assertIn('cinder_dmclone.driver', found)
        if not importlib.util.find_spec('nova'):
            # tests/scheduler imports them.
            self.assertLess(NEED_NOVA, set(found))
            found = [name for name in found if name not in NEED_NOVA]
        for name in found:
            with self.subTest(name):
                importlib.import_module(name)
