# SPDX-License-Identifier: Apache-2.0
"""Every planted mistake is found: the simulator has teeth."""

from __future__ import annotations

from tests.simulation import explore
from tests.simulation import mistakes
from tests.simulation import planted  # noqa: F401 (plants)
from tests.simulation import planted_around  # noqa: F401 (plants)
from tests.simulation import planted_births  # noqa: F401 (plants)
from tests.simulation import planted_cut  # noqa: F401 (plants)
from tests.simulation import planted_drain  # noqa: F401 (plants)
from tests.simulation import planted_exchange  # noqa: F401 (plants)
from tests.simulation import planted_loans  # noqa: F401 (plants)
from tests.simulation import planted_manage  # noqa: F401 (plants)
from tests.simulation import planted_pins  # noqa: F401 (plants)
from tests.simulation import planted_recoveries  # noqa: F401 (plants)
from tests.simulation import planted_reverts  # noqa: F401 (plants)
from tests.simulation import planted_shared  # noqa: F401 (plants)
from tests.simulation import planted_snap_moves  # noqa: F401 (plants)
from tests.simulation import planted_thin  # noqa: F401 (plants)
from tests.simulation import planted_views  # noqa: F401 (plants)
from tests.simulation import test_explore
from tests.unit import base

setUpModule = test_explore.setUpModule


class PlantedTest(base.TestCase):

    def caught(self, names: list[str]) -> None:
        for name in test_explore.share(names):
            with self.subTest(name):
                bug = mistakes.BUGS[name]
                with bug.planted():
                    report = explore.explore(
                        bug.schedules(),
                        explore.Report(), lambda report: bool(report.found))
                self.assertTrue(report.found, 'was not found')
                violation = report.found[0].violation
                assert violation
                # Else the mistake is one of the plant.
                self.assertNotIsInstance(
                    violation.__cause__,
                    (AttributeError, NameError, TypeError))
                print(f'{name}: schedule {report.schedules}, '
                      f'{report.found[0].violation}')

    def test_odd(self) -> None:
        self.caught(sorted(mistakes.BUGS)[1::2])

    def test_even(self) -> None:
        self.caught(sorted(mistakes.BUGS)[::2])
