# SPDX-License-Identifier: Apache-2.0
"""What ``cinder-dmclone status`` says of an LV."""

from __future__ import annotations

import contextlib
import io
import json
import typing
from unittest import mock

from cinder_dmclone.cli import show
from cinder_dmclone.cli import status
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.dm import status as dm_status
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Sectors
from tests.unit import base
from tests.unit.fake import cloud

LV = LvUuid('70000000-0000-4000-8000-000000000001')
LENDER = lv_tags.SourceTag(NodeName('b@x'), LvUuid('y'), '', '', Bytes(0), 512)
SOURCE = device.Device('source', '253:1', table.Table.single(
    Sectors(8), table.Linear('253:0')), 1, False, True)
CLONE = '8 8/1024 32 16384/65536 0 1 no_discard_passdown 0 '


class DescribeTest(base.TestCase):

    def describe(self, clone: str) -> str:
        stack = state.Stack(LV, clone=dm_status.CloneStatus.parse(clone))
        return status.describe(status.Seen(stack, status._hydration(
            stack, stack, 1.0)))

    def test_a_clone_that_copies(self) -> None:
        was, now = (state.Stack(
            LV, tags=lv_tags.Tags(source=LENDER),
            devices={names.source(LV): SOURCE},
            clone=dm_status.CloneStatus.parse(
                f'8 8/1024 32 {hydrated}/65536 0 0 0 rw'))
            for hydrated in (8192, 16384))
        found = status._hydration(was, now, 2.0)
        text = status.describe(status.Seen(now, found))
        self.assertEqual(
            'no tags, hydrated [=====               ] 25 % from b@x/y '
            '(path up), 64.0 MiB/s, 0:00:12 left', text)

    def test_the_lender_is_away(self) -> None:
        self.assertEqual('no tags, hydrated [=====               ] 25 % '
                         '(NO PATH)', self.describe(CLONE + 'rw'))

    def test_a_clone_that_cannot_write_its_metadata(self) -> None:
        self.assertEqual('no tags, ERROR: its clone is read-only, '
                         'hydrated [=====               ] 25 % (NO PATH)',
                         self.describe(CLONE + 'ro'))

    def test_a_snapshot(self) -> None:
        tags = ['dmclone.1.own/3/v', 'dmclone.1.snap/1/s/v/512']
        past = 'dmclone.1.past/4/v/b#x/y'
        for found, text in (
                (tags, 'volume v generation 3, snapshot s of volume v'),
                ([*tags, past], 'was volume v, which went on to b@x/y, '
                                'snapshot s of volume v')):
            self.assertEqual(text, status.describe(status.Seen(state.Stack(
                LV, tags=lv_tags.Tags.parse(found)))))

    def test_a_volume_that_a_clone_hydrates_from(self) -> None:
        tags = ['dmclone.1.own/3/v', 'dmclone.1.lent/1/w/b#x/y/g//512']
        self.assertEqual(
            'volume v generation 3, lent to b@x/y',
            status.describe(status.Seen(state.Stack(
                LV, tags=lv_tags.Tags.parse(tags)))))

    def test_what_a_volume_was_before_a_revert(self) -> None:
        """Whoever borrows it reads it; what takes its place does not."""
        tags = ['dmclone.1.own/3/v', 'dmclone.1.lent/4/v/b#x/y/g//0',
                'dmclone.1.lent/2/w/c#x/z/g/iqn/512']
        seen = status.Seen(state.Stack(LV, tags=lv_tags.Tags.parse(tags)))
        self.assertEqual('lent to c@x/z, b@x/y takes its place',
                         status.describe(seen))
        found = status.as_json(seen)
        self.assertEqual(('lent', ['c@x/z']),
                         (found['role'], found['lent_to']))

    def test_a_clone_that_failed(self) -> None:
        self.assertEqual('no tags, ERROR: its clone is failed',
                         self.describe('Fail'))


class SuspendedTest(base.CloudTestCase):

    def test_an_lv_that_lvm_has_left_suspended(self) -> None:
        self.a.group.volumes[names.data_lv(self.lv)].suspended = True
        seen, = status.look(self.a.process.world)
        self.assertEqual('ERROR: it is suspended', seen.problem)
        self.assertIn(', ERROR: it is suspended', status.describe(seen))


class JsonTest(base.TestCase):

    def test_roles(self) -> None:
        own, snap, past, copy = (
            'dmclone.1.own/3/v', 'dmclone.1.snap/1/s/v/512',
            'dmclone.1.past/4/v/b#x/y', 'dmclone.1.copy/4/v')
        lent = 'dmclone.1.lent/4/{}/b#x/y/g/iqn.1/512'
        for role, tags in (
                ('volume', [own, snap]), ('volume', [own, lent.format('w')]),
                ('lent', [own, lent.format('v')]), ('past', [own, past, snap]),
                ('copy', [copy]), ('unknown', [])):
            stack = state.Stack(LV, tags=lv_tags.Tags.parse(tags))
            self.assertEqual(role, status.as_json(status.Seen(stack))['role'])
        stack = state.Stack(LV, unreadable='why')
        found = status.as_json(status.Seen(stack))
        self.assertEqual(('unreadable', 'UNREADABLE: why'),
                         (found['role'], found['problem']))


class ShowTest(base.CloudTestCase):

    def show(self, command: str, *nodes: cloud.Node,
             json: bool = False) -> tuple[int, str, str]:
        """Exit status and output of a command on the nodes' backends."""
        out, errors = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(errors)):
            code = show.run(command, [node.process.world for node in nodes],
                            json, {})
        return code, out.getvalue(), errors.getvalue()

    def test_nothing_is_on_its_way(self) -> None:
        self.assertEqual((0, '', ''), self.show('list', self.a))
        self.assertEqual(
            (0, {'format': 1, 'backends': [
                {'node': 'b@dmclone', 'lvs': []}]}),
            self.parsed('status', self.b))

    def parsed(self, command: str, *nodes: cloud.Node) -> tuple[
            int, typing.Any]:
        code, out, _ = self.show(command, *nodes, json=True)
        return code, json.loads(out)

    def test_a_volume_on_its_way(self) -> None:
        """Every node tells of it; the one that it is on, how far it is."""
        self.relocated()
        self.cloud.settle(1)
        for node in self.a, self.b:
            code, found = self.parsed('list', node)
            volume, = found['backends'][0]['volumes']
            self.assertEqual(
                (0, self.volume, 'b@dmclone', f'a@dmclone/{self.lv}', None),
                (code, volume['volume'], volume['node'], volume['lender'],
                 volume['offer']))
        code, found = self.parsed('status', self.b)
        lv, = found['backends'][0]['lvs']
        self.assertEqual(
            (0, 'volume', f'a@dmclone/{self.lv}', None),
            (code, lv['role'], lv['lender'], lv['problem']))
        self.assertEqual(lv['size'], lv['hydration']['size'])
        # Its path counts as usable until a read fails.
        with mock.patch.object(self.cloud, 'lose_paths'):
            self.a.lose_power()
        code, found = self.parsed('status', self.b)
        lv, = found['backends'][0]['lvs']
        self.assertEqual((1, 'NO PATH'), (code, lv['problem']))

    def test_a_volume_that_is_asked_for(self) -> None:
        for node, at, text, kind in (
                ('b@dmclone', 'available', 'moves to', 'move'),
                ('a@dmclone', 'available', 'goes on in', 'cut'),
                ('a@dmclone', 'reverting', 'is reverted as', 'revert')):
            offer = f'{node}/70000000-0000-4000-8000-000000000001'
            self.cloud.db.update(self.volume, status=at,
                                 provider_id=f'1;offer={offer}')
            self.assertEqual(
                (0, f'{self.volume}  a@dmclone  {at}, {text} {offer}\n',
                 ''), self.show('list', self.a))
            code, found = self.parsed('list', self.a)
            volume, = found['backends'][0]['volumes']
            self.assertEqual((0, kind), (code, volume['offered_for']))

    def test_a_backend_that_cannot_be_shown(self) -> None:
        """The others are."""
        with mock.patch.object(self.a.group, 'report', side_effect=(
                exceptions.GroupLost(group='g', disk='/dev/sdx'))):
            code, out, errors = self.show('status', self.a, self.b)
            self.assertEqual((2, ''), (code, out))
            self.assertIn('a@dmclone: Volume group g is not found', errors)
            code, found = self.parsed('status', self.a, self.b)
        self.assertEqual([['error', 'node'], ['lvs', 'node']],
                         [sorted(each) for each in found['backends']])

    def test_the_database_is_away(self) -> None:
        with self.cloud.db.away():
            code, out, errors = self.show('list', self.a)
        self.assertEqual((2, ''), (code, out))
        self.assertRegex(
            errors, r'\Aa@dmclone: The database does not answer: .*\n\Z')
