# SPDX-License-Identifier: Apache-2.0
"""The machine of a test process: started once, removed whatever happens."""
from __future__ import annotations

import atexit
import functools

from lab.errors import LabError, LabInUse
from lab.machine.alone import Alone
from tests.functional import environment


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
