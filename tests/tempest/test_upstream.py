# SPDX-License-Identifier: Apache-2.0
"""tempest's tests of volumes and those of Cinder's plugin, in a lab."""
from __future__ import annotations

import functools
import tempfile
import unittest

from lab import install
from lab.lab import Lab
from tests.functional import environment
from tests.tempest import chosen
from tests.tempest import settings
from tests.tempest import suite

# Where tests of volumes are; cinder_tempest_plugin.rbac is about cinder-api's
# policies.
_FOLDERS = (('tempest', 'api/volume'), ('cinder_tempest_plugin', 'api'))


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               pattern: str | None) -> unittest.TestSuite:
    """Part of unittest's protocol: the tests of this module."""
    settings.use(settings.sections)
    choice = chosen.Choice(
        suite.found(*_FOLDERS), chosen.read(chosen.EXCLUDED),
        chosen.read(chosen.DRIVER))
    return suite.InLab(
        choice.long() if environment.LONG else choice.short(), _lab)


@functools.cache
def _lab() -> Lab:
    """The lab of this process, with an image."""
    # On native threads the second image that a service of Cinder 29 fetches
    # may hang (eventlet's tpool in cinder/image/image_utils.py).
    lab = environment.lab(native=())
    # Cinder looks at images with it.
    install.ensure_packages(['qemu-utils'])
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(1 << 20))
        file.flush()
        settings.provide_image(lab, settings.IMAGE, file.name)
    return lab
