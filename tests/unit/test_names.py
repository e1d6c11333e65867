# SPDX-License-Identifier: Apache-2.0
"""Names are told apart by what they say, and foreign ones are left alone."""

from __future__ import annotations

import uuid

from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.sysfs import sessions
from lab import look
from tests.unit import base
from tests.unit.fake import database

LV, OTHER = (LvUuid(str(uuid.UUID(int=number))) for number in (1, 2))
PREFIX = 'iqn.2010-10.org.openstack:'


class NamesTest(base.TestCase):

    def test_devices_parse(self) -> None:
        for name in (names.front('host', LV), names.front('h-1.org', LV),
                     names.DeviceName(names.Kind.FRONT, LV,
                                      place=f'h-{OTHER}'),
                     names.loan(LV, OTHER),
                     names.serve(LV), names.local_io(LV), names.clone(LV),
                     names.source(LV)):
            self.assertEqual(name, names.DeviceName.parse(str(name)))

    def test_foreign_devices(self) -> None:
        for name in ('', 'vg-lv', 'dmclone-', f'dmclone-other-{LV}',
                     f'front-h-{LV}', 'dmclone-clone-1',
                     f'dmclone-clone-{LV}x', f'x-dmclone-clone-{LV}'):
            with self.subTest(name):
                self.assertIsNone(names.DeviceName.parse(name))

    def test_path_differs_between_nodes(self) -> None:
        self.assertNotEqual(names.front('a', LV).path,
                            names.front('b', LV).path)
        # What the lab looks for.
        self.assertEqual(look.front('node1', LV),
                         str(names.front('node1', LV)))

    def test_lvs(self) -> None:
        database.engine()
        self.assertEqual(LV, names.lv_uuid(names.data_lv(LV)))
        self.assertEqual(LV, names.lv_uuid(names.meta_lv(LV)))
        for foreign in ('root', 'volume-1', f'_snapshot-{LV}',
                        names.unmanaged_lv(VolumeId(LV))):
            self.assertIsNone(names.lv_uuid(foreign))

    def test_an_iqn_is_used_for_one_attempt(self) -> None:
        """An old initiator can never end up on another volume."""
        found = {names.loan_iqn(PREFIX, *key) for key in (
            (LV, OTHER, 1), (LV, OTHER, 2), (OTHER, LV, 1))}
        found.add(names.serve_iqn(PREFIX, LV))
        self.assertEqual(4, len(found))
        for iqn in found:
            self.assertTrue(sessions.is_ours(iqn), iqn)

    def test_an_initiator_is_a_name_and_no_path(self) -> None:
        for good in ('iqn.1993-08.org.debian:01:cad181614cec',
                     'IQN.2020-01.org.Host:A-b', 'eui.02004567A425678D'):
            self.assertTrue(names.is_initiator(good), good)
        begin = 'iqn.2020-01.org.'
        for bad in (None, 5, [begin + 'a'], '', 'host', begin[:4],
                    begin + 'a/../b', begin + 'a b', begin + 'a\n',
                    begin + 'ü', begin + 'a_b', begin + 'a' * 220,
                    'iqn.2020-01.org:a', 'iqn.org.a', 'eui.0200', 'naa.host'):
            self.assertFalse(names.is_initiator(bad), bad)

    def test_a_chap_name_is_taken_as_it_is(self) -> None:
        """LIO strips what looks like the mark of an encoded value."""
        iqns = [names.serve_iqn('iqn.x:', LvUuid(str(number)))
                for number in range(2000)]
        self.assertTrue([iqn for iqn in iqns if ':dmclone-0b' in iqn])
        for iqn in iqns:
            user = names.chap_user(iqn)
            self.assertTrue(iqn.endswith(user))
            self.assertFalse(user.lower().startswith(('0x', '0b')), user)

    def test_secret_is_derived_from_key_and_target(self) -> None:
        """H26: CHAP can be derived again after a crash, by the lender."""
        one = names.chap_secret(b'key', 'iqn.x')
        self.assertEqual(one, names.chap_secret(b'key', 'iqn.x'))
        self.assertNotEqual(one, names.chap_secret(b'other', 'iqn.x'))
        self.assertNotEqual(one, names.chap_secret(b'key', 'iqn.y'))
        # RFC 7143: at least 96 bits.
        self.assertGreaterEqual(len(one), 24)
