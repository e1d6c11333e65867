# SPDX-License-Identifier: Apache-2.0
"""What the tests of a process run in: started once, removed at its end.

DMCLONE_MACHINE_LAB names a lab that is up already, see lab().
"""
from __future__ import annotations

import atexit
import functools
import os

from lab import FAULTY_DRIVER, Lab
from lab.errors import LabError, LabInUse
from lab.machine.alone import Alone
from lab.node import Size
from tests.functional import environment

# What a GiB of Cinder's has in the lab: without KVM everything takes its time.
GIB = environment.FULL_GIB >> 3


@functools.cache
def alone() -> Alone:
    """A machine that no other process has, without a control plane."""
    environment.leave_nothing()
    for number in range(1, 100):
        found = Alone(f'alone-{number}')
        try:
            found.start()
        except LabInUse:
            continue
        atexit.register(found.stop)
        return found
    raise LabError('all names of machines are taken')


@functools.cache
def lab() -> Lab:
    """A lab whose first node is as in others, the second a machine.

    Their disks lose what was not flushed.
    """
    given = os.environ.get('DMCLONE_MACHINE_LAB')
    if given:
        return Lab.attach(given)
    return environment.start(make)


def make(number: int, keep: bool = False) -> Lab:
    """That lab, not started."""
    return Lab(f'machine-{number}', nodes=2, machines=1, driver=FAULTY_DRIVER,
               size=Size(volatile=True), keep=keep,
               backend={'volume_clear': 'none', 'lab_gib': GIB},
               default={'backend_stats_polling_interval':
                        environment.STATS_SECONDS})
