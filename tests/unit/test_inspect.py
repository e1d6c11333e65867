# SPDX-License-Identifier: Apache-2.0
"""What it costs to look at a node with many copies."""

from __future__ import annotations

import types
import typing
from unittest import mock
import uuid

from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.host import lvm
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.sysfs import sessions
from cinder_dmclone import units
from tests.unit import base
from tests.unit.iscsi import sysfs

PREFIX = 'iqn.2010-10.org.openstack:'
MANY = 100
# Of one session: its target and its state, its disk's state and number.
FILES = 4


class ManyTest(base.TestCase):
    """All of them hydrate: each has a session."""

    def setUp(self) -> None:
        super().setUp()
        self.sysfs = self.enterContext(sysfs.Sysfs())
        self.lvs = [LvUuid(str(uuid.uuid4())) for _ in range(MANY)]
        reads = mock.Mock(wraps=sessions._read)
        self.enterContext(mock.patch.object(sessions, '_read', reads))
        self.reads = reads
        lvs = {}
        for number, lv in enumerate(self.lvs, 1):
            iqn = names.loan_iqn(PREFIX, lv, lv, 2)
            self.sysfs.add(number, iqn, disk=f'sd{number}',
                           devnum=f'8:{number}')
            lvs[names.data_lv(lv)] = self.data(lv, iqn)
        group = types.SimpleNamespace(
            name='volumes', report=mock.Mock(
                return_value=types.SimpleNamespace(lvs=lvs)))
        self.report = group.report
        self.dm = mock.Mock()
        self.dm.devices.return_value = {}
        self.targets = mock.Mock()
        self.targets.list.return_value = {}
        self.host: typing.Any = types.SimpleNamespace(
            group=group, own_meta_group=None, dm=self.dm,
            targets=self.targets, initiator=initiator.Initiator(),
            settings=types.SimpleNamespace(target_prefix=PREFIX))

    def data(self, lv: LvUuid, iqn: str) -> lvm.LogicalVolume:
        tags: tuple[lv_tags.Tag, ...] = (
            lv_tags.OwnTag(2, VolumeId(lv)), lv_tags.SourceTag(
                NodeName('a@dmclone'), lv, iqn, '192.0.2.1:3260',
                units.Bytes(1 << 30), 512))
        return lvm.LogicalVolume(
            names.data_lv(lv), '/dev/one', units.Bytes(1 << 30),
            frozenset(map(lv_tags.print_tag, tags)), '253:1', True, True)

    def test_sessions_are_read_once(self) -> None:
        found = inspect.collect(self.host)
        self.assertEqual({f'8:{number}' for number in range(1, MANY + 1)},
                         {stack.disk and stack.disk.devnum
                          for stack in found.values()})
        self.assertEqual(MANY * FILES, self.reads.call_count)
        self.report.assert_called_once()
        self.dm.devices.assert_called_once()
        self.targets.list.assert_called_once()

    def test_of_one_only_its_own_is_looked_at(self) -> None:
        lv = self.lvs[MANY // 2]
        stack = inspect.refresh(self.host, lv)
        assert stack.disk
        self.assertEqual(f'8:{MANY // 2 + 1}', stack.disk.devnum)
        # The targets of all tell whose they are.
        self.assertEqual(MANY + FILES - 1, self.reads.call_count)
        self.report.assert_called_once()
        self.dm.devices.assert_called_once_with(lv)
        self.assertEqual(lv, self.targets.list.call_args.args[0])
