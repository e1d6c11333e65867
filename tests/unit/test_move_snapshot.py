# SPDX-License-Identifier: Apache-2.0
"""``move-snapshot``, and what ``list`` has of it."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from unittest import mock

from cinder import rpc

from cinder_dmclone.cli import decisions
from cinder_dmclone.cli import show
from tests.unit.service import test_snapshot_moves


class MoveSnapshotTest(test_snapshot_moves.MoveTestCase):
    """The snapshot is on a; the command is run on c."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(rpc, 'initialized',
                                            return_value=True))

    def call(self, peer: str = 'b', yes: bool = True,
             snapshot: str = '') -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        arguments = argparse.Namespace(
            command='move-snapshot', of=snapshot or self.snapshot, node=peer,
            yes=yes)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = decisions.run(arguments, [self.c.process.world])
        return code, out.getvalue(), err.getvalue()

    def assert_listed(self) -> None:
        """On any node, to people and to programs."""
        offer = self.found(self.snapshot).offer
        for as_json in False, True:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = show.run('list', [self.b.process.world], as_json, {})
            self.assertEqual(0, code)
            if as_json:
                self.assertEqual([{
                    'snapshot': self.snapshot, 'volume': self.volume,
                    'node': 'a@dmclone', 'lv': self.at.lv,
                    'status': 'available', 'offer': str(offer),
                    'problem': None}], json.loads(out.getvalue())[
                        'backends'][0]['snapshots'])
            else:
                self.assertEqual(
                    f'{self.snapshot}  a@dmclone  snapshot of volume '
                    f'{self.volume}, available, moves to {offer}\n',
                    out.getvalue())

    def test_one_that_cannot_be_read_is_listed(self) -> None:
        for record, why in (('v2;1;offer=x', 'has format 2'),
                            ('x;offer=y', 'no number')):
            self.cloud.db.update_snapshot(self.snapshot, provider_id=record)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = show.run('list', [self.b.process.world], False, {})
            self.assertEqual(1, code)
            self.assertRegex(
                out.getvalue(), f'{self.snapshot}  -  snapshot of volume '
                f'{self.volume}, available, UNREADABLE: .*{why}')

    def test_told_and_begun(self) -> None:
        before = self.state()
        for peer in ('b', 'b@dmclone'):
            code, told, err = self.call(peer, yes=False)
            self.assertEqual((0, '', before), (code, err, self.state()))
            self.assertRegex(
                told, f'^Snapshot {self.snapshot} of volume {self.volume} '
                r'\(1 GiB\) is copied from .* to b@dmclone, .*\n'
                r'Nothing was changed\. With --yes it is done\.\n$')
        code, done, err = self.call()
        self.assertEqual((0, ''), (code, err))
        self.assert_listed()
        self.assertEqual([told.splitlines()[0], 'Begun: "cinder-dmclone '
                          'status" there shows how far it is.'],
                         done.splitlines())
        self.cloud.settle()
        self.assertEqual('b@dmclone', self.at.node)

    def test_taken_back(self) -> None:
        self.call()
        code, done, err = self.call('a')
        self.assertEqual((0, 'Done.', ''),
                         (code, done.splitlines()[-1], err))
        self.cloud.settle()
        self.assertEqual('a@dmclone', self.at.node)

    def test_bad_input(self) -> None:
        before = self.state()
        for peer, snapshot, code, why in (
                ('b', 'x', 2, 'the database has no snapshot x'),
                ('a', '', 1, 'it is there'),
                ('b@other', '', 1, 'b@other is no node of this backend')):
            found, out, err = self.call(peer, snapshot=snapshot)
            self.assertEqual((code, ''), (found, out))
            self.assertRegex(err, f'^cinder-dmclone: .*{why}.*Nothing was '
                             'changed.\n$')
        self.assertEqual(before, self.state())

    def test_records(self) -> None:
        for record, why in (
                ('v2;x', 'Upgrade'), ('0', 'is on no node'),
                (f'1;at=a@other/{self.lv}', 'is on a@other, of which backend '
                 'this node is none')):
            self.cloud.db.update_snapshot(self.snapshot, provider_id=record)
            found, out, err = self.call()
            self.assertEqual((2, ''), (found, out))
            self.assertRegex(err, f'^cinder-dmclone: .*{why}.*Nothing was '
                             'changed.\n$')

    def test_the_service_is_down(self) -> None:
        self.down.add(self.a.name)
        code, out, err = self.call()
        self.assertEqual((2, ''), (code, out))
        self.assertIn('cinder-volume of a@dmclone, which has to do it, is '
                      'down: start it. Nothing was changed.', err)

    def test_the_database_is_away(self) -> None:
        with self.cloud.db.away():
            code, out, err = self.call()
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(err, '^cinder-dmclone: the database does not answer: '
                         '.*Nothing was changed.\n$')
