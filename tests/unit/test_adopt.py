# SPDX-License-Identifier: Apache-2.0
"""A volume is an LV of which its row does not know, and an operator says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import typing
from unittest import mock

from cinder_dmclone.cli import adopt
from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import locks
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.service import operators

OTHER = LvUuid('07e40000-0000-4000-8000-000000000000')


class AdoptTestCase(operators.OperatorTestCase):
    """The volume went from a to b; cinder-volume is stopped everywhere.

    That of b is in memory here, for its ports.
    """

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(
            locks.CONF, 'state_path', self.folder(), create=True))
        self.moved()
        self.down.update(self.cloud.nodes)
        self.real = self.cloud.row(self.volume)
        self.copy = self.real.lv

    def moved(self) -> None:
        attachment, path = self.relocated()
        self.cloud.settle()
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.settle()

    def restore(self, **values: typing.Any) -> None:
        """The database is that of before the move."""
        self.cloud.db.update(self.volume, **{
            'host': f'{self.a.name}#pool', '_name_id': None,
            'provider_id': '1', 'status': 'available',
            'migration_status': None, **values})

    def call(self, lv: LvUuid | None = None, yes: bool = True,
             node: cloud.Node | None = None) -> tuple[int, list[str], str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = adopt.run(lv or self.copy,
                             [(node or self.b).process.world], yes)
        return code, out.getvalue().splitlines(), err.getvalue()

    def assert_refused(self, why: str, code: int = 1,
                       lv: LvUuid | None = None,
                       node: cloud.Node | None = None) -> None:
        """In one line, and nothing was changed."""
        before = self.state()
        found, lines, err = self.call(lv, node=node)
        self.assertEqual((code, []), (found, lines), err)
        self.assertRegex(err, rf'\Acinder-dmclone: .*{why}.*\n\Z')
        self.assertEqual(before, self.state())

    def start(self) -> None:
        self.down.clear()
        for node in self.cloud.nodes.values():
            node.kill()
        self.cloud.restart()
        self.cloud.settle()


class RestoredTest(AdoptTestCase):
    """The database was restored from a backup."""

    def setUp(self) -> None:
        super().setUp()
        self.restore()

    def test_a_plan_changes_nothing(self) -> None:
        before = self.state()
        code, lines, err = self.call(yes=False)
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([
            f'Volume {self.volume} becomes b@dmclone/{self.copy} (generation '
            f'2). The row says a@dmclone/{self.lv} (generation 1).',
            f'gives up: what was written to a@dmclone/{self.lv} since the '
            'database says that it is the volume (generation 1)',
            'Nothing was changed. With --yes it is done.'], lines)
        self.assertEqual(before, self.state())

    def test_the_row_says_what_it_said(self) -> None:
        code, lines, err = self.call()
        self.assertEqual((0, ''), (code, err))
        self.assertEqual('Done. Start cinder-volume when the rows of all '
                         'volumes are right.', lines[-1])
        row = self.cloud.row(self.volume)
        self.assertEqual(
            (self.real.owner, self.real.provider_id, self.real.host),
            (row.owner, row.provider_id, row.host))
        self.start()
        self.assert_settled()

    def test_one_that_hydrates(self) -> None:
        self.call()
        self.start()
        self.cloud.attach(self.volume, self.a)
        self.a.process.loop.run_once(everything=True)
        self.down.update(self.cloud.nodes)
        real = self.cloud.row(self.volume)
        self.assertIsNotNone(real.source)
        self.restore()
        code, lines, err = self.call(real.lv, node=self.a)
        self.assertEqual((0, ''), (code, err))
        self.assertIn(f'which hydrates from {real.source}', lines[0])
        self.assertEqual(real.provider_id,
                         self.cloud.row(self.volume).provider_id)

    def test_with_an_offer_in_the_backup(self) -> None:
        self.restore(provider_id=f'1;offer=c@dmclone/{OTHER}')
        self.assertEqual(0, self.call()[0])
        self.assertEqual(self.real.provider_id,
                         self.cloud.row(self.volume).provider_id)

    def test_what_may_be_newer_elsewhere_is_told(self) -> None:
        """Nobody can ask whether that move came to be."""
        tag = lv_tags.LoanTag(
            3, self.volume, self.others[0].name, OTHER, GroupUuid('c'),
            'iqn.c', units.Bytes.from_gib(1))
        self.b.group.retag(names.data_lv(self.copy),
                           add=[lv_tags.print_tag(tag)])
        self.b.group.flush()
        self.assertIn(
            f'gives up: what c@dmclone/{OTHER} may have of the volume that is '
            'newer: if its node says that it is the volume, adopt that',
            self.call(yes=False)[1])

    # -- what is not done ---------------------------------------------------

    def test_cinder_volume_works_here(self) -> None:
        file = locks._opened(locks.Presence(self.b.name)._path)
        self.addCleanup(os.close, file)
        fcntl.flock(file, fcntl.LOCK_SH)
        self.assert_refused('cinder-volume works on b@dmclone, or another '
                            'command does: stop it first')

    def test_cinder_volume_works_where_the_row_says(self) -> None:
        self.down.remove(self.a.name)
        self.assert_refused('cinder-volume works on a@dmclone, which may '
                            'have the volume too')

    def test_cinder_volume_works_where_it_is_offered(self) -> None:
        self.restore(provider_id=f'1;offer=c@dmclone/{OTHER}')
        self.down.remove(self.others[0].name)
        self.assert_refused('cinder-volume works on c@dmclone')

    def test_something_works_on_it(self) -> None:
        for values, why in (({'status': 'deleting'}, 'its status is deleting'),
                            ({'migration_status': 'migrating'},
                             'its migration status is migrating')):
            self.restore(**values)
            with self.subTest(why):
                before = self.state()
                code, _, err = self.call()
                self.assertEqual((1, before), (code, self.state()))
                self.assertIn(why, err)

    def test_the_volume_was_deleted(self) -> None:
        self.cloud.db.destroy(self.volume)
        self.assert_refused('was deleted')

    def test_the_database_is_away(self) -> None:
        with self.cloud.db.away():
            code, lines, err = self.call()
        self.assertEqual((2, []), (code, lines))
        self.assertRegex(err, r'\Acinder-dmclone: the database does not '
                         r'answer: .*\. Nothing was changed\.\n\Z')

    def test_somebody_was_faster(self) -> None:
        """Between the look and the change."""
        real = volumes.RowStore.adopt

        def late(store: volumes.RowStore, row: typing.Any,
                 *rest: typing.Any) -> typing.Any:
            self.restore(provider_id=f'1;offer=c@dmclone/{OTHER}')
            return real(store, row, *rest)
        with mock.patch.object(volumes.RowStore, 'adopt', late):
            code, _, err = self.call()
        self.assertEqual(1, code)
        self.assertIn('is no longer as it was found (adopt)', err)
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)

    def test_the_second_of_two_operators(self) -> None:
        self.call()
        self.assert_refused(f'it is volume {self.volume}, as the row says')

    def test_at_once(self) -> None:
        with self.b.process.world.locks.volume(self.volume, 1.0):
            self.assert_refused('Another operation on volume', 2)

    def test_no_lv(self) -> None:
        self.assert_refused('this node has no LV .*\\. Nothing was changed',
                            2, OTHER)

    def tagged(self, *tags: lv_tags.Tag) -> None:
        lv = self.b.group.volumes[names.data_lv(self.copy)]
        self.b.group.retag(names.data_lv(self.copy), remove=list(lv.tags))
        self.b.group.retag(names.data_lv(self.copy),
                           add=[lv_tags.print_tag(tag) for tag in tags])
        self.b.group.flush()

    def test_what_its_tags_do_not_say(self) -> None:
        own = lv_tags.OwnTag(2, self.volume)
        for tags, why in (
                ((), 'do not say that it was ever a volume'),
                ((lv_tags.CopyTag(2, self.volume),), 'was ever a volume'),
                ((own, lv_tags.ForgottenTag(self.volume)), 'ever a volume'),
                ((own, lv_tags.ErasedTag(self.volume)),
                 'what it held may be overwritten in part'),
                ((own, lv_tags.PastTag(3, self.volume, self.a.name, OTHER)),
                 'the volume has gone on from it, to a@dmclone'),
                ((lv_tags.OwnTag(1, self.volume),),
                 'the row names another LV of the same generation'),
                ((lv_tags.OwnTag(2, VolumeId(OTHER)),),
                 f'the database knows nothing of volume {OTHER}')):
            self.tagged(*tags)
            with self.subTest(why):
                self.assert_refused(why)

    def test_what_is_older_than_the_row(self) -> None:
        self.restore(provider_id='5')
        self.assert_refused('it has generation 2 of the volume, the row 5')

    def test_what_is_smaller_than_the_volume(self) -> None:
        self.restore(size=2)
        self.assert_refused('it is smaller than the volume, which has 2 GiB')

    def test_one_of_another_backend(self) -> None:
        self.restore(host='a@other#pool')
        self.assert_refused('')

    def test_what_cannot_be_read(self) -> None:
        self.restore(provider_id='v2;x')
        self.assert_refused('which this release does not know')
        self.restore()
        self.b.group.retag(names.data_lv(self.copy), add=['dmclone.2.own/x'])
        self.b.group.flush()
        self.assert_refused('which this release does not know')


class RenamedTest(AdoptTestCase):
    """Node b was called otherwise, or Cinder wrote another host."""

    def setUp(self) -> None:
        super().setUp()
        self.cloud.db.update(self.volume, host='old@dmclone#pool')
        self.down.add('old@dmclone')

    def test_the_row_names_this_node(self) -> None:
        code, lines, err = self.call()
        self.assertEqual((0, ''), (code, err))
        self.assertEqual([
            f'Volume {self.volume} becomes b@dmclone/{self.copy} (generation '
            f'2). The row says old@dmclone/{self.copy} (generation 2).'],
            lines[:-1])
        self.start()
        self.assert_settled()

    def test_others_know_it_by_the_former_name(self) -> None:
        source = Location(self.a.name, self.lv)
        self.cloud.db.update(self.volume, provider_id=f'2;from={source}')
        self.assert_refused('others know it as one of old@dmclone')


class CrashTest(AdoptTestCase):

    def test_an_answer_that_is_lost(self) -> None:
        """It can be run again, and says that it was done."""
        self.restore()
        real = volumes.RowStore._update

        def lost(*arguments: typing.Any, **named: typing.Any) -> int:
            real(*arguments, **named)
            raise exceptions.DatabaseAway(volume=self.volume, reason='gone')
        with mock.patch.object(volumes.RowStore, '_update', lost):
            code, _, err = self.call()
        self.assertEqual(2, code)
        self.assertIn('is not known: run the command again', err)
        self.assert_refused('as the row says')
        self.start()
        self.assertEqual(base.DATA, [
            self.b.group.volumes[names.data_lv(self.copy)].read(region)
            for region in range(base.REGIONS)])
