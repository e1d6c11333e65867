# SPDX-License-Identifier: Apache-2.0
"""The row is changed by compare-and-swap, also in a Galera cluster."""
from __future__ import annotations

import contextlib
import pathlib
import sys
import typing
from collections import Counter

from cinder.objects.fields import SnapshotStatus
import pymysql
import testtools

from cinder_dmclone.database import rows
from lab import galera, install, races
from lab.crew import Crew
from lab.processes import wait_for
from tests.functional import environment

_CONTENDERS = 6
_VOLUMES = 12
_SECONDS = 300 if environment.LONG else 20
# How often a volume is deleted, against 14 for all else: not all too soon.
_DELETES = 20 / _SECONDS
# Every move of a snapshot, as the database saw it, and no limit on volumes.
_PINS = (
    'CREATE TABLE pins (number BIGINT PRIMARY KEY AUTO_INCREMENT, '
    'snapshot CHAR(36), status VARCHAR(255))',
    'CREATE TRIGGER pins AFTER UPDATE ON snapshots FOR EACH ROW '
    'IF NOT NEW.provider_id <=> OLD.provider_id THEN INSERT INTO pins SET '
    'snapshot = NEW.id, status = NEW.status; END IF',
    'UPDATE quota_classes SET hard_limit = -1')


class GaleraTest(testtools.TestCase):

    cluster: galera.Cluster
    races: races.Races
    crew: Crew
    _stack: contextlib.ExitStack

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        environment.leave_nothing()
        install.ensure_galera()
        with contextlib.ExitStack() as stack:
            cls.cluster = stack.enter_context(
                galera.Cluster(pathlib.Path(sys.prefix)))
            directory = cls.cluster.directory
            redis = stack.enter_context(galera.redis(directory))
            cls.crew = stack.enter_context(Crew(
                pathlib.Path(sys.prefix), cls.cluster.url,
                directory / 'crew.log'))
            cls.races = races.Races(cls.cluster, cls.crew, redis)
            cls.crew.run([{'do': 'tests.functional.rivals:services'}])
            for statement in _PINS:
                cls.cluster.nodes[0].query(statement)
            cls.addClassCleanup(stack.pop_all().close)

    def migrating(self) -> str:
        """A volume that may be offered to another node."""
        return races.add_volume(self.cluster, migration_status='migrating')

    def row(self, volume: str, columns: str) -> tuple[typing.Any, ...]:
        found, = self.cluster.read(
            f"SELECT {columns} FROM volumes WHERE id = '{volume}'")
        return found

    def test_a_certification_conflict_is_tried_again(self) -> None:
        """The other node's change is kept, and so is ours."""
        volume = self.migrating()
        here, there, _ = self.cluster.nodes
        found, = self.crew.run([{
            'do': 'tests.functional.rivals:conflict', 'volume': volume,
            'port': here.port, 'rival': galera.url(there.port)}])
        self.assertEqual(1, found['deadlocks'])
        self.assertEqual((found['provider_id'], 'rival'),
                         self.row(volume, 'provider_id, display_name'))

    def test_a_commit_that_comes_late(self) -> None:
        """Whether it or the renewal is made, it is one of them."""
        here, there, _ = self.cluster.nodes
        for other in (here, there):
            with self.subTest(same=other is here):
                volume = self.migrating()
                found, = self.crew.run([{
                    'do': 'tests.functional.rivals:late', 'volume': volume,
                    'port': here.port, 'other': other.port,
                    'watch': galera.url(other.port)}])
                # Reading alone does not tell.
                self.assertTrue(found['as before'])
                self.assertEqual(other is here, found['waits'])
                self.assertEqual((other is here, other is not here),
                                 (found['committed'], found['renewed']))
                provider_id, = self.row(volume, 'provider_id')
                self.assertEqual(found['renewed'],
                                 provider_id.endswith(';renewed=1'))

    def test_a_row_that_stays_locked(self) -> None:
        """By whom nobody knows: the change is given up, and made later."""
        volume = self.migrating()
        node = self.cluster.nodes[0]
        self.crew.begin([{
            'do': 'tests.functional.rivals:locked', 'volume': volume,
            'port': node.port, 'holder': galera.url(node.port)}])
        wait_for('the end of a renewal', self.crew.answered)
        found, = self.crew.results()
        # What else Cinder sends there waits as ever.
        self.assertEqual({'made': False, 'as ever': True, 'later': True},
                         found)

    def test_a_node_that_lags_is_waited_for(self) -> None:
        volume = self.migrating()
        here, there, _ = self.cluster.nodes
        # Nothing is applied there while this holds.
        with contextlib.closing(pymysql.connect(
                unix_socket=str(there.socket), user='root')) as holder:
            holder.cursor().execute('FLUSH TABLES WITH READ LOCK')
            self.crew.begin([{
                'do': 'tests.functional.rivals:lag', 'volume': volume,
                'port': here.port, 'lagging': there.port}])
            wait_for('a reader', lambda: self.crew.answered() or
                     self.reads(there))
            waited = self.reads(there)
            holder.cursor().execute('UNLOCK TABLES')
            found, = self.crew.results()
        self.assertTrue(waited, found)
        # Without this the node would not have lagged.
        self.assertEqual('1', found['plain'])
        self.assertEqual(found['offered'], found['store'])

    @staticmethod
    def reads(node: galera.Node) -> bool:
        """Whether a reader of volumes waits there."""
        return bool(node.query(
            "SELECT 1 FROM information_schema.processlist WHERE user = 'lab' "
            "AND info LIKE 'SELECT volumes%'"))

    def test_a_lost_update_is_found(self) -> None:
        """A change on no condition overwrites one it has not seen."""
        volume = self.migrating()
        results = self.crew.run(
            2 * [{'do': 'tests.functional.rivals:careless',
                  'volume': volume}])
        verdict = races.judge(
            [claim for found in results for claim in found['claims']],
            races.changes(self.cluster, [volume]))
        self.assertEqual((2, 1), (verdict.changes, len(verdict.lost)))

    def test_every_way_of_the_comparison(self) -> None:
        case = races.Case(1, 3)
        for way in races.WAYS if environment.LONG else races.STOPPED:
            line = self.races.run(case, way, 2)
            self.assertEqual(6, len(line.release))
            if 'stale' not in way:
                self.assertEqual(0, line.lost, way)

    def test_contenders(self) -> None:
        """All that users ask for at once, of the same volumes."""
        volumes = [races.add_volume(self.cluster, f'{node}#pool')
                   for node in races.NODES
                   for _ in range(_VOLUMES // len(races.NODES))]
        results = self.crew.run([
            {'do': 'tests.functional.rivals:race', 'volumes': volumes,
             'seconds': _SECONDS, 'deletes': _DELETES, 'seed': seed}
            for seed in range(_CONTENDERS)])
        requests: Counter[str] = Counter()
        for found in results:
            requests.update(found['requests'])
        claims = [tuple(claim) for found in results
                  for claim in found['claims']]
        print(f'{_CONTENDERS} contenders, {_VOLUMES} volumes, {_SECONDS} s: '
              + ', '.join(f'{count} {step}' for step, count in Counter(
                  claim[0] for claim in claims).most_common()),
              ', '.join(f'{count} {what}'
                        for what, count in requests.most_common()),
              *(f'{sum(found[what] for found in results)} {what}'
                for what in ('refused', 'deadlocks')), sep=', ', flush=True)
        self.assert_changes_are_those_claimed(claims, volumes)
        self.assert_one_winner(claims, volumes)
        self.assert_nobody_moved_what_was_in_use(volumes)
        # A busy machine does not get to each of them within 20 seconds.
        self.assertEqual(5 if environment.LONG else len(requests),
                         len(requests) or None, requests)
        self.assert_snapshots(
            [one for found in results for one in found['snapshots']])
        for volume in volumes:
            self.assert_whole(volume, claims)

    def assert_changes_are_those_claimed(
            self, claims: list[tuple[str, ...]], volumes: list[str]) -> None:
        """Nothing was overwritten, made in secret, or claimed in vain."""
        said = [claim for claim in claims if claim[2]]
        history = races.changes(self.cluster, volumes)
        verdict = races.judge({claim[1:] for claim in said}, history)
        self.assertTrue(verdict.right, verdict)
        self.assertEqual(len(history), verdict.changes)
        offers = Counter(claim for claim in said if claim[0] == 'offer')
        self.assertEqual([], [claim for claim, count in offers.items()
                              if count > 1])

    def assert_one_winner(self, claims: list[tuple[str, ...]],
                          volumes: list[str]) -> None:
        """Of each reservation and of each deletion."""
        names = ', '.join(f"'{volume}'" for volume in volumes)
        attachments = self.cluster.read(
            'SELECT id FROM volume_attachment '
            f'WHERE volume_id IN ({names})')
        self.assertEqual(
            sorted(one for one, in attachments),
            sorted(claim[3] for claim in claims if claim[0] == 'reserve'))
        deleted = self.cluster.read(
            f'SELECT id FROM volumes WHERE deleted AND id IN ({names})')
        self.assertEqual(
            sorted(one for one, in deleted),
            sorted(claim[1] for claim in claims if claim[0] == 'delete'))

    def assert_nobody_moved_what_was_in_use(self, volumes: list[str]) -> None:
        """Nothing was offered or moved while Cinder worked on it."""
        names = ', '.join(f"'{volume}'" for volume in volumes)
        # What raises the generation or adds an offer.
        moved = self.cluster.read(
            'SELECT status FROM history WHERE was <> became AND ('
            "SUBSTRING_INDEX(was, ';', 1) <> SUBSTRING_INDEX(became, ';', 1)"
            " OR became LIKE '%offer=%') "
            f'AND volume IN ({names})')
        self.assertTrue(moved)
        self.assertLessEqual({status for status, in moved}, {
            *rows.ATTACH_STATUSES, *rows.MIGRATE_STATUSES})

    def assert_snapshots(self, told: list[str]) -> None:
        """One deleted each, and none moved that was to be deleted."""
        # Not those that volume_destroy took with it, which keep their status:
        # the rivals look for no deletion before they make a snapshot.
        deleted = self.cluster.read(
            'SELECT snapshots.id FROM snapshots JOIN volumes '
            'ON volumes.id = volume_id WHERE snapshots.deleted '
            'AND (NOT volumes.deleted OR snapshots.status IN '
            f"('{SnapshotStatus.DELETING}', '{SnapshotStatus.DELETED}'))")
        self.assertEqual(sorted(one for one, in deleted), sorted(told))
        self.assertEqual([], self.cluster.read(
            'SELECT snapshot FROM pins WHERE status <> '
            f"'{SnapshotStatus.AVAILABLE}'"))

    def assert_whole(self, volume: str,
                     claims: list[tuple[str, ...]]) -> None:
        """The row is what the last of its owners made of it."""
        # Who commits the same offer as another wants, and gets, the same.
        commits = {claim for claim in claims
                   if claim[:2] == ('commit', volume)}
        provider_id, host, name = self.row(
            volume, 'provider_id, host, _name_id')
        self.assertEqual(1 + len(commits),
                         int(provider_id.partition(';')[0]))
        last = [was for _, _, was, became in commits if became.startswith(
            f'{1 + len(commits)};')]
        if commits:
            offer, = last
            self.assertIn(f'offer={host.partition("#")[0]}/{name}', offer)
