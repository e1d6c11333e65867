# SPDX-License-Identifier: Apache-2.0
"""Whether nodes without disks send what real ones send to the database.

What is said of large fleets is measured of nodes of unit tests on a real
database (``lab/profile.py``). Here three real nodes do the same, and their
statements are counted beside those. Cinder's own manager sends some, too: it
writes attachments, and looks at all volumes of its node when it starts.
"""
from __future__ import annotations

from collections.abc import Callable

from lab import account, figures, profile
from lab.figures import Figure
from lab.lab import Lab
from lab.processes import wait_for

LAB = {'nodes': 3}
_VOLUMES = 8
# Longer than the longest pause between two looks of the driver, or from one
# question for statistics to the next.
_QUIET = 70


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """Statements of three real nodes by those of the model, for each work."""
    count = 2 if quick else _VOLUMES
    say('the model')
    model = profile.model(count, LAB['nodes'])
    samples: dict[str, list[float]] = {what: [] for what in model}
    for number in range(times):
        say(f'three nodes, {number + 1} of {times}')
        volumes = [lab.create_volume(1, node=1) for _ in range(count)]
        account.wait_quiet(lab, _QUIET)
        # When it is drained there is nothing that could be left.
        for what, work in (('restart', _restart), ('relocate', _relocate),
                           ('drain', _drain)):
            samples[what].append(float(account.cost(
                lab, lambda: work(lab, volumes)).statements.other))
            if what == 'relocate':
                _bring_back(lab, volumes[0])
        for volume in volumes:
            lab.delete_volume(volume)
    return [figures.ratio(
        f'SQL statements, {what}, {count} volumes', 'real', 'model',
        {'real': samples[what], 'model': times * [float(model[what])]}, '')
        for what in model]


def _restart(lab: Lab, volumes: list[str]) -> None:
    service = lab.nodes[0].volume
    service.stop()
    service.start()
    service.wait_up()


def _relocate(lab: Lab, volumes: list[str]) -> None:
    """Attach the first elsewhere, until its old copy is released."""
    lab.attach_volume(volumes[0], 2)
    _wait_settled(lab, volumes[0])


def _bring_back(lab: Lab, volume: str) -> None:
    for attachment, in lab.sql(
            'select id from volume_attachment where deleted = 0 and '
            f"volume_id = '{volume}'"):
        lab.detach_volume(attachment)
    lab.detach_volume(lab.attach_volume(volume, 1).id)
    _wait_settled(lab, volume)


def _drain(lab: Lab, volumes: list[str]) -> None:
    lab.nodes[0].volume.cli('drain', '--yes')


def _wait_settled(lab: Lab, volume: str) -> None:
    wait_for(f'end of the hydration of {volume}', lambda: not lab.sql(
        f"select id from volumes where id = '{volume}' and "
        "provider_id like '%;%'"), interval=1)
