# SPDX-License-Identifier: Apache-2.0
"""Every module can be imported by itself, as services and tools do."""

from __future__ import annotations

import importlib
import pkgutil

import cinder_dmclone
from tests.unit import base
from tests.unit.fake import database  # noqa: F401  registers the objects


class ImportTest(base.TestCase):

    def test_all_modules(self) -> None:
        found = [module.name for module in pkgutil.walk_packages(
            cinder_dmclone.__path__, 'cinder_dmclone.')]
        self.assertIn('cinder_dmclone.driver', found)
        for name in found:
            with self.subTest(name):
                importlib.import_module(name)
