# SPDX-License-Identifier: Apache-2.0
"""tempest's tests of servers with volumes, and of backups, in a lab."""
from __future__ import annotations

import pathlib
import unittest

from tests.functional import environment
from tests.tempest import chosen
from tests.tempest import settings as basic
from tests.tempest import suite
from tests.tempest_nova import settings

_FOLDERS = (('tempest', 'api/volume'), ('tempest', 'api/compute'),
            ('tempest', 'scenario'), ('cinder_tempest_plugin', 'api'),
            ('cinder_tempest_plugin', 'scenario'))
_HERE = pathlib.Path(__file__).parent


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               pattern: str | None) -> unittest.TestSuite:
    """Part of unittest's protocol: the tests of this module."""
    basic.use(settings.sections)
    choice = chosen.Choice(
        suite.found(*_FOLDERS), chosen.read(_HERE / 'exclude.txt'),
        chosen.read(_HERE / 'wanted.txt'))
    return suite.InLab(choice.reaching() if environment.LONG else [],
                       settings.lab)
