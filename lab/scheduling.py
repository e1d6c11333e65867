# SPDX-License-Identifier: Apache-2.0
"""What the filter and the weigher of nova-scheduler cost; without a lab."""
from __future__ import annotations

import json
import pathlib
import statistics

from lab.figures import Aim, Figure
from lab.processes import run
from lab.virtualenv import CHECKOUT

# In milliseconds a host.
_AIM = Aim(1.0, most=True)
_ABOUT = ('1000 hosts, 30000 volumes, 4 of a server, 100 servers placed just '
          'now')


def measure(python: pathlib.Path, times: int) -> list[Figure]:
    """The figures; ``python`` is the one to measure with."""
    samples = json.loads(run(
        'env', f'PYTHONPATH={CHECKOUT}', str(python), '-m', 'lab.placing',
        str(times), timeout=3600).stdout)
    return [
        *(_a_host(name, samples[name]) for name in ('filter', 'weigher')),
        Figure('reading what Cinder answers', round(
            statistics.median(samples['report']) * 1000, 1), 'ms',
            'in the background, every 30 s at most',
            samples={'report': samples['report']})]


def _a_host(name: str, seconds: list[float]) -> Figure:
    return Figure(f'{name}, a host', round(
        statistics.median(seconds), 5), 'ms', _ABOUT, _AIM,
        {name: seconds})
