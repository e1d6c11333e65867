# SPDX-License-Identifier: Apache-2.0
"""Trees of volumes, snapshots and clones that grew at random.

Each volume holds what it has to, in whatever order they are deleted, and
nothing is left. DMCLONE_SEED takes the choices of an earlier run again.
"""
from __future__ import annotations

import os
import pathlib
import random

from lab.show import Failure
from lab.soak.choice import Choice
from lab.soak.engine import Engine, Journal
from tests.functional import base
from tests.functional import environment

STEPS = 10
# What makes a tree, on whatever nodes, and lets its parts differ.
WEIGHTS = {'create': 1, 'attach': 4, 'write': 3, 'snapshot': 6, 'clone': 4,
           'born': 5, 'migrate': 1, 'detach': 1, 'revert': 2}


@environment.only_long
class TreesTest(base.FunctionalTest):

    nodes = 3

    def test_a_tree(self) -> None:
        seed = int(os.environ.get('DMCLONE_SEED') or
                   random.randrange(10**6))
        engine = Engine(
            self.lab, self.gib,
            Choice(seed, len(self.lab.nodes), calm=True, weights=WEIGHTS),
            Journal(pathlib.Path(self.lab.directory, 'tree.jsonl')),
            lambda text: print(text, flush=True))
        try:
            engine.steps(STEPS)
        except Failure as failure:
            self.fail(f'seed {seed}: {failure}')
