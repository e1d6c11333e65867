# SPDX-License-Identifier: Apache-2.0
"""provider_id prints and parses."""

from __future__ import annotations

import random
import uuid

from cinder_dmclone.database.provider_id import and_lost
from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database.provider_id import Ranges
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from tests.unit import base


def _location(random_: random.Random) -> Location | None:
    if random_.random() < 0.5:
        return None
    return Location(NodeName(f'host{random_.randrange(1000)}@backend'),
                    LvUuid(str(uuid.UUID(int=random_.getrandbits(128)))))


def _ranges(random_: random.Random) -> Ranges:
    found: Ranges = ()
    for _ in range(random_.randrange(6)):
        last = found[-1][1] if found else 1
        found = and_lost(found, last + 1, last + random_.randrange(1, 4))
    return found


class ProviderIdTest(base.TestCase):

    def test_round_trip(self) -> None:
        random_ = random.Random(1)
        for _ in range(300):
            record = ProviderId(random_.randrange(10 ** 6),
                                _location(random_), _location(random_),
                                random_.randrange(3),
                                _ranges(random_))
            self.assertEqual(record, ProviderId.parse(str(record)))

    def test_empty_is_generation_0(self) -> None:
        for text in (None, ''):
            self.assertEqual(ProviderId(0),
                             ProviderId.parse(text))

    def test_limit_of_the_column(self) -> None:
        lv = LvUuid(str(uuid.uuid4()))
        fixed = len(f'7;offer=/{lv};renewed=123456')
        fits = Location(NodeName('n' * (255 - fixed)), lv)
        self.assertEqual(255, len(str(ProviderId(7, None, fits, 123456))))
        longer = Location(NodeName('n' * (256 - fixed)), lv)
        self.assertRaises(exceptions.CorruptRecord, str,
                          ProviderId(7, None, longer, 123456))

    def test_an_offer_can_be_renewed(self) -> None:
        lv = LvUuid(str(uuid.uuid4()))
        fixed = len(f'7;offer=/{lv};renewed=123456')
        fits, longer_ = (NodeName('n' * (size - fixed)) for size in (255, 256))
        offered = ProviderId(7, offer=Location(fits, lv))
        self.assertLess(len(str(offered)), 255)
        longer = ProviderId(7, offer=Location(longer_, lv))
        self.assertRaises(exceptions.CorruptRecord, str, longer)

    def test_nonsense(self) -> None:
        for text in ('x', '-1', '1;from=', '1;from=a', '1;from=/b',
                     '1;from=a/', '1;other=a/b', '1;from=a/b;from=a/c',
                     ';offer=a/b', '1;offer', '1;renewed=x', '1;renewed',
                     '1;lost', '1;lost=', '1;lost=2', '1;lost=2-x',
                     '1;lost=2-3-4', '1;lost=2-3,'):
            with self.subTest(text):
                self.assertRaises(exceptions.CorruptRecord,
                                  ProviderId.parse, text)

    def test_the_oldest_that_were_given_up_are_one(self) -> None:
        found: Ranges = ()
        for first in (2, 4, 6, 9):
            found = and_lost(found, first, first)
        self.assertEqual(((2, 4), (6, 6), (9, 9)), found)
        self.assertEqual('10;lost=2-4,6-6,9-9', str(ProviderId(
            10, lost=found)))
        # The second time an older lender took it back.
        self.assertEqual(((2, 4), (6, 6), (8, 8)), and_lost(
            ((3, 3), (2, 4), (6, 6)), 8, 8))

    def test_a_later_release_wrote_it(self) -> None:
        self.assertRaises(exceptions.LaterFormat, ProviderId.parse, 'v2;3')
