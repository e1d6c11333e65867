# SPDX-License-Identifier: Apache-2.0
"""Which requests have to be refused, and which refusals pass by themselves."""
from __future__ import annotations

import re

from lab.soak.model import Model, Step

# What Cinder's API answers to a request that the model knows to be wrong.
STATUSES = (400, 409)
# What the driver says of a volume that moved on before it had hydrated: it
# has only to be asked again later.
_PASSING = re.compile(r'dmclone_max_copies|wait until the hydration|'
                      r'try again (later|afterwards|when)')


def reason(step: Step, model: Model) -> str:
    """Why Cinder must refuse a step, in words; empty if it must not."""
    volume = model.volumes.get(step.name)
    if step.verb == 'delete' and volume:
        if volume.node:
            return 'a server has it'
        return 'it has snapshots' * bool(model.snapshots_of(step.name))
    if step.verb == 'attach' and volume:
        return 'another server has it' * bool(volume.node)
    if step.verb == 'extend' and volume:
        return 'it is not larger then' * (step.gib <= volume.gib)
    if step.verb == 'clone':
        return 'its source is larger' * (
            step.gib < model.volumes[step.source].gib)
    if step.verb == 'born':
        return 'its source is larger' * (
            step.gib < model.snapshots[step.source].gib)
    if step.verb == 'revert' and volume:
        return _revert(step, model)
    return ''


def _revert(step: Step, model: Model) -> str:
    volume = model.volumes[step.name]
    if model.snapshots_of(step.name)[-1].name != step.source:
        return 'a later snapshot is there'
    if volume.gib != model.snapshots[step.source].gib:
        return 'it was extended since'
    return 'a server has it' * bool(volume.node)


def passes(text: str) -> bool:
    """Whether what was refused with this text is only to be asked later."""
    return bool(_PASSING.search(text))
