# SPDX-License-Identifier: Apache-2.0
"""What the database does for a statement does not grow with the fleet."""
from __future__ import annotations

import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from cinder_dmclone.database import rows
from cinder_dmclone.database import volumes
from cinder_dmclone.location import NodeName
from lab.fleet import Fleet, NODES, VOLUMES
from tests.functional import environment
from tests.functional import fleet
from tests.unit.fake import database as fake

# The most rows that are looked at for one statement.
EXAMINED = 100

# Tests that move volumes about in every way there is. Those of chains send the
# same kinds of statements as the others, many times.
SCENARIOS = ('relocation.test_relocation', 'relocation.test_migration',
             'relocation.test_cut', 'relocation.test_birth',
             'service.test_creation', 'service.test_host_names',
             'service.test_own_work', 'service.test_reverts',
             'service.test_service', 'service.test_snapshots',
             'test_exchange',
             *(('relocation.test_chain',) if environment.LONG else ()))

# A node of the fleet, which is drained.
NODE = NodeName('a@dmclone')


class FleetTest(unittest.TestCase):
    """The scenarios of unit tests, in the database of a fleet."""

    maxDiff = None

    def setUp(self) -> None:
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix='dmclone-fleet-')
        self.addCleanup(directory.cleanup)
        self.fleet = Fleet(pathlib.Path(directory.name),
                           pathlib.Path(sys.prefix), plans=True)
        self.addCleanup(self.fleet.stop)
        self.fleet.start()

    def test_no_statement_reads_the_fleet(self) -> None:
        self.run_scenarios()
        self.look_at_a_node()
        sent = self.fleet.statements()
        # All that there is to be sent is among it.
        for kind in ('SELECT volumes.', 'SELECT volume_attachment.',
                     'SELECT services.', 'SELECT snapshots.',
                     'UPDATE snapshots SET provider_id',
                     'UPDATE volumes SET provider_id',
                     'UPDATE volumes SET _name_id', 'INSERT INTO messages',
                     'SELECT volumes.id AS volumes_id, NOT (EXISTS',
                     "UPDATE volumes SET status='available', provider_id",
                     'SELECT driver_initiator_data.',
                     'INSERT INTO driver_initiator_data'):
            self.assertTrue([found for found in sent
                             if found.text.startswith(kind)], kind)
        self.assertTrue([found for found in sent
                         if 'volumes_deleted_host_idx' in found.keys])
        self.assertTrue([found for found in sent if (
            'launched_at IS NULL AND (EXISTS') in found.text])
        dear = {found.shape: found for found in sent
                if found.scans or found.examined > EXAMINED}
        self.assertEqual('', '\n'.join(map(str, dear.values())))

    def run_scenarios(self) -> None:
        engine = fake.connect(self.fleet.url)
        self.addCleanup(engine.dispose)
        suite = unittest.defaultTestLoader.loadTestsFromNames(
            [f'tests.unit.{name}' for name in SCENARIOS])
        output = io.StringIO()
        with mock.patch.object(fake, '_engine', engine), (
                mock.patch.object(fake, 'Database', fleet.Database)):
            result = unittest.TextTestRunner(output).run(suite)
        self.assertTrue(result.wasSuccessful(), output.getvalue())

    def look_at_a_node(self) -> None:
        """As ``drain`` does every few seconds; none of its volumes moves."""
        store = volumes.RowStore()
        here = store.on(NODE)
        self.assertEqual(VOLUMES // NODES, len(here))
        kept = store.hindrances(here, rows.Leave())
        self.assertEqual({row.id for row in here}, set(kept))
