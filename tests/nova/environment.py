# SPDX-License-Identifier: Apache-2.0
"""The lab with Nova of a test process: three nodes, started once.

DMCLONE_NOVA_LAB names a lab that is up already and is left up.
"""
from __future__ import annotations

import functools
import os

from lab import Lab
from lab.lab import STILL_DRIVER
from tests.functional import environment

_GIVEN = os.environ.get('DMCLONE_NOVA_LAB')


@functools.cache
def lab() -> Lab:
    """The lab of this process."""
    return Lab.attach(_GIVEN) if _GIVEN else environment.start(make)


def make(number: int) -> Lab:
    """The lab as the tests need it.

    Volumes hydrate not at all until a test has seen what it wants to see, so
    that they leave more copies behind than the default allows. The services
    of Cinder run on native threads, half of those of the lab without Nova on
    eventlet.
    """
    return Lab(f'nova-{number}', nodes=3, nova=True, driver=STILL_DRIVER,
               native=(1, 2, 3),
               backend={'volume_clear': 'none',
                        'dmclone_region_size_kib': 16,
                        'dmclone_max_copies': 8,
                        'dmclone_online_extend': True,
                        'lab_gib': environment.gib()},
               default={'rpc_response_timeout': 100,
                        'backend_stats_polling_interval':
                        environment.STATS_SECONDS})
