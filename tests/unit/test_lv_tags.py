# SPDX-License-Identifier: Apache-2.0
"""What LVs say of themselves prints and parses."""

from __future__ import annotations

import dataclasses
import random
import re
import typing
import uuid

from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.units import Bytes
from tests.unit import base

LVM_TAG = re.compile(r'[A-Za-z0-9_+./=!:&#][A-Za-z0-9_+./=!:&#-]*')

V = VolumeId('v')
LOAN = lv_tags.LoanTag(5, V, NodeName('b@x'), LvUuid('lv'), GroupUuid('g'),
                       'iqn.i', Bytes(1))

PORTALS = ('192.0.2.7:3260', '[2001:db8::7]:3260', '[fe80::1]:860')


def _node(random_: random.Random) -> str:
    return (f'host{random_.randrange(1000)}.example-site.org'
            f'@backend_{random_.randrange(9)}')


def _uuid(random_: random.Random) -> str:
    return str(uuid.UUID(int=random_.getrandbits(128)))


def _tag(random_: random.Random, kind: type) -> lv_tags.Tag:
    def text(name: str) -> str:
        return {
            'node': _node(random_), 'portal': random_.choice(PORTALS),
            'iqn': f'iqn.2010-10.org.openstack:dmclone-{_uuid(random_)}',
            'initiator': 'iqn.1993-08.org.debian:01:a@b#c&[d]_~',
            'group': 'Xyz01a-' + _uuid(random_)[:4],
        }.get(name) or _uuid(random_)
    return kind(*(random_.randrange(1 << 45) if field.type in ('int', 'Bytes')
                  else text(field.name)
                  for field in dataclasses.fields(kind)))


class TagTest(base.TestCase):

    def test_round_trip(self) -> None:
        random_ = random.Random(2)
        for kind in typing.get_args(lv_tags.Tag):
            for _ in range(100):
                tag = _tag(random_, kind)
                self.assertEqual(
                    tag, lv_tags.parse_tag(lv_tags.print_tag(tag)))

    def test_lvm_would_refuse_an_at_sign(self) -> None:
        """H24: a tag has no character that lvchange refuses."""
        random_ = random.Random(3)
        for kind in typing.get_args(lv_tags.Tag):
            for _ in range(100):
                text = lv_tags.print_tag(_tag(random_, kind))
                self.assertRegex(text, f'^{LVM_TAG.pattern}$')
                self.assertLess(len(text), 1024)

    def test_borrower_is_a_location_of_the_row(self) -> None:
        tag = dataclasses.replace(LOAN, node=NodeName('b.example.org@x'))
        found = lv_tags.parse_tag(lv_tags.print_tag(tag))
        assert isinstance(found, lv_tags.LoanTag)
        self.assertEqual(Location(tag.node, LvUuid('lv')), found.borrower)

    def test_secrets_are_not_in_tags(self) -> None:
        """H26: what a node cannot derive is in a tag, the secret is not."""
        fields = {field.name for kind in typing.get_args(lv_tags.Tag)
                  for field in dataclasses.fields(kind)}
        self.assertLessEqual(
            {'iqn', 'portal', 'block', 'initiator', 'group'}, fields)
        self.assertFalse({'password', 'secret', 'user'} & fields)

    def test_a_later_release_wrote_it(self) -> None:
        for text in ('dmclone.2.own/1/v', 'dmclone.10.lent'):
            with self.subTest(text):
                self.assertRaises(exceptions.LaterFormat, lv_tags.parse_tag,
                                  text)

    def test_foreign_tags_are_not_ours(self) -> None:
        for text in ('', 'own', 'site.own/1/x', 'dmclone'):
            self.assertIsNone(lv_tags.parse_tag(text))
            self.assertEqual([], lv_tags.ours([text]))
        # Of another release, or broken.
        later = ['dmclone.2.own/1', 'dmclone.x']
        self.assertEqual(later, lv_tags.ours(['site', *later]))

    def test_nonsense(self) -> None:
        for text in ('dmclone.1.own', 'dmclone.1.own/1', 'dmclone.1.own/x/v',
                     'dmclone.1.own/1/v/w', 'dmclone.1.new/1/v', 'dmclone.'):
            with self.subTest(text):
                self.assertRaises(exceptions.CorruptRecord, lv_tags.parse_tag,
                                  text)


class TagsTest(base.TestCase):

    def parse(self, *tags: lv_tags.Tag) -> lv_tags.Tags:
        return lv_tags.Tags.parse(
            ['site', *(lv_tags.print_tag(tag) for tag in tags)])

    def test_sorted_by_meaning(self) -> None:
        own = lv_tags.OwnTag(4, V)
        lent = [dataclasses.replace(LOAN, lv=LvUuid(lv)) for lv in 'yz']
        source = lv_tags.SourceTag(NodeName('a@x'), LvUuid('x'), 'iqn',
                                   '192.0.2.1:3260', Bytes(1), 512)
        found = self.parse(own, *lent, source)
        self.assertEqual((own, None, source, tuple(lent)),
                         (found.own, found.copy, found.source, found.lent))
        self.assertEqual((4, 'v'), (found.generation, found.volume))

    def test_a_lv_may_be_several_snapshots(self) -> None:
        own = lv_tags.OwnTag(4, V)
        snaps = [lv_tags.SnapTag(1, SnapshotId(name), V, Bytes(512))
                 for name in 'st']
        found = self.parse(own, *snaps)
        self.assertEqual((tuple(snaps), 4, 'v'),
                         (found.snaps, found.generation, found.volume))
        self.assertEqual('v', self.parse(*snaps).volume)

    def test_two_of_a_kind(self) -> None:
        self.assertRaises(exceptions.CorruptRecord, self.parse,
                          lv_tags.OwnTag(4, V), lv_tags.OwnTag(5, V))

    def test_a_copy_is_no_proof_of_its_generation(self) -> None:
        found = self.parse(lv_tags.CopyTag(5, V))
        self.assertEqual((4, 'v'), (found.generation, found.volume))
        own = lv_tags.OwnTag(3, V)
        found = self.parse(own, LOAN)
        self.assertEqual((4, 'v'), (found.generation, found.volume))

    def test_a_loan_to_another_volume_is_about_that_one(self) -> None:
        other = dataclasses.replace(LOAN, generation=6,
                                    volume=VolumeId('another'))
        found = self.parse(lv_tags.OwnTag(1, V), other)
        self.assertEqual((1, 'v'), (found.generation, found.volume))
        self.assertIsNone(self.parse(other).volume)
