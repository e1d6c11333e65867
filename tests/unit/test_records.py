# SPDX-License-Identifier: Apache-2.0
"""provider_id and tags print and parse."""

from __future__ import annotations

import dataclasses
import random
import re
import typing
import uuid

from cinder_dmclone import exceptions
from cinder_dmclone import records
from tests.unit import base

LVM_TAG = re.compile(r'[A-Za-z0-9_+./=!:&#][A-Za-z0-9_+./=!:&#-]*')

PORTALS = ('192.0.2.7:3260', '[2001:db8::7]:3260', '[fe80::1]:860')


def _node(random_: random.Random) -> str:
    return (f'host{random_.randrange(1000)}.example-site.org'
            f'@backend_{random_.randrange(9)}')


def _uuid(random_: random.Random) -> str:
    return str(uuid.UUID(int=random_.getrandbits(128)))


def _location(random_: random.Random) -> records.Location | None:
    if random_.random() < 0.5:
        return None
    return records.Location(_node(random_), _uuid(random_))


def _tag(random_: random.Random, kind: type) -> records.Tag:
    def text(name: str) -> str:
        return {
            'node': _node(random_), 'portal': random_.choice(PORTALS),
            'iqn': f'iqn.2010-10.org.openstack:dmclone-{_uuid(random_)}',
            'initiator': 'iqn.1993-08.org.debian:01:abc_d',
            'group': 'Xyz01a-' + _uuid(random_)[:4],
        }.get(name) or _uuid(random_)
    return kind(*(random_.randrange(1 << 45) if field.type == 'int'
                  else text(field.name)
                  for field in dataclasses.fields(kind)))


class ProviderIdTest(base.TestCase):

    def test_round_trip(self) -> None:
        random_ = random.Random(1)
        for _ in range(300):
            record = records.ProviderId(random_.randrange(10 ** 6),
                                        _location(random_),
                                        _location(random_))
            self.assertEqual(record, records.ProviderId.parse(str(record)))

    def test_empty_is_generation_0(self) -> None:
        for text in (None, ''):
            self.assertEqual(records.ProviderId(0),
                             records.ProviderId.parse(text))

    def test_limit_of_the_column(self) -> None:
        lv = str(uuid.uuid4())
        fixed = len(f'7;offer=/{lv}')
        fits = records.Location('n' * (255 - fixed), lv)
        self.assertEqual(255, len(str(records.ProviderId(7, offer=fits))))
        longer = records.Location('n' * (256 - fixed), lv)
        self.assertRaises(exceptions.BadRecord, str,
                          records.ProviderId(7, offer=longer))

    def test_nonsense(self) -> None:
        for text in ('x', '-1', '1;from=', '1;from=a', '1;from=/b',
                     '1;from=a/', '1;other=a/b', '1;from=a/b;from=a/c',
                     ';offer=a/b', '1;offer'):
            with self.subTest(text):
                self.assertRaises(exceptions.BadRecord,
                                  records.ProviderId.parse, text)


class TagTest(base.TestCase):

    def test_round_trip(self) -> None:
        random_ = random.Random(2)
        for kind in typing.get_args(records.Tag):
            for _ in range(100):
                tag = _tag(random_, kind)
                self.assertEqual(
                    tag, records.parse_tag(records.print_tag(tag)))

    def test_lvm_would_refuse_an_at_sign(self) -> None:
        """H24: a tag has no character that lvchange refuses."""
        random_ = random.Random(3)
        for kind in typing.get_args(records.Tag):
            for _ in range(100):
                text = records.print_tag(_tag(random_, kind))
                self.assertRegex(text, f'^{LVM_TAG.pattern}$')
                self.assertLess(len(text), 1024)

    def test_borrower_is_a_location_of_the_row(self) -> None:
        tag = records.Lent(3, 'v', 'b.example.org@x', 'lv', 'g', 'iqn.i')
        found = records.parse_tag(records.print_tag(tag))
        assert isinstance(found, records.Lent)
        self.assertEqual(records.Location('b.example.org@x', 'lv'),
                         found.borrower)

    def test_secrets_are_not_in_tags(self) -> None:
        """H26: what a node cannot derive is in a tag, the secret is not."""
        fields = {field.name for kind in typing.get_args(records.Tag)
                  for field in dataclasses.fields(kind)}
        self.assertLessEqual(
            {'iqn', 'portal', 'block', 'initiator', 'group'}, fields)
        self.assertFalse({'password', 'secret', 'user'} & fields)

    def test_foreign_tags_are_not_ours(self) -> None:
        for text in ('', 'own', 'site.own/1/x', 'dmclone'):
            self.assertIsNone(records.parse_tag(text))

    def test_nonsense(self) -> None:
        for text in ('dmclone.own', 'dmclone.own/1', 'dmclone.own/x/v',
                     'dmclone.own/1/v/w', 'dmclone.new/1/v', 'dmclone.'):
            with self.subTest(text):
                self.assertRaises(exceptions.BadRecord, records.parse_tag,
                                  text)


class TagsTest(base.TestCase):

    def parse(self, *tags: records.Tag) -> records.Tags:
        return records.Tags.parse(
            ['site', *(records.print_tag(tag) for tag in tags)])

    def test_sorted_by_meaning(self) -> None:
        own = records.Own(4, 'v')
        lent = [records.Lent(5, 'v', 'b@x', lv, 'g', 'i') for lv in 'yz']
        source = records.From('a@x', 'x', 'iqn', '192.0.2.1:3260', 1, 512)
        found = self.parse(own, *lent, source)
        self.assertEqual((own, None, source, tuple(lent)),
                         (found.own, found.copy, found.source, found.lent))
        self.assertEqual((4, 'v'), (found.generation, found.volume))

    def test_two_of_a_kind(self) -> None:
        self.assertRaises(exceptions.BadRecord, self.parse,
                          records.Own(4, 'v'), records.Own(5, 'v'))

    def test_a_copy_is_no_proof_of_its_generation(self) -> None:
        found = self.parse(records.Copy(5, 'v'))
        self.assertEqual((4, 'v'), (found.generation, found.volume))
        found = self.parse(records.Lent(5, 'v', 'b@x', 'y', 'g', 'i'))
        self.assertEqual((4, 'v'), (found.generation, found.volume))
