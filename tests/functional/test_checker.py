# SPDX-License-Identifier: Apache-2.0
"""The checker sees every kind of leftover, and nothing in a clean lab."""
from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from tests.functional import base

IQN = 'iqn.2010-10.org.openstack:dmclone-' + '0' * 32
TARGET = f'/sys/kernel/config/target/iscsi/{IQN}'
STRANGER = 'iqn.2026-01.lab.dmclone:stranger'
RECORD = f'/etc/iscsi/nodes/{IQN}/10.99.1.1,3260,1'


class CheckerTest(base.FunctionalTest):
    """Plants one leftover after the other."""

    @contextlib.contextmanager
    def planted(self, plant: str, uproot: str) -> Iterator[list[str]]:
        """The findings while a shell command's effect is there."""
        self.node1.run(plant)
        try:
            yield self.checker.check(0)
        finally:
            self.node1.run(uproot)

    def assert_found(self, text: str, findings: list[str]) -> None:
        self.assertTrue(any(text in finding for finding in findings),
                        f'{text!r} is not in {findings}')

    def assert_catches(self, text: str, plant: str, uproot: str) -> None:
        with self.planted(plant, uproot) as findings:
            self.assert_found(text, findings)

    def pause(self) -> None:
        """Keep node 1 from repairing what is planted."""
        self.addCleanup(self.node1.volume.resume)
        self.node1.volume.pause()

    def test_devices(self) -> None:
        self.assertEqual([], self.checker.check())
        name = f'dmclone-front-node1-{uuid.uuid4()}'
        remove = f'dmsetup remove --retry --noudevsync {name}'
        self.assert_catches(
            f'device {name} is not justified',
            f'dmsetup create --noudevsync {name} '
            f'-u CINDER-DMCLONE-{name[8:]} --table "0 8 zero"', remove)
        self.assert_catches(
            f'device {name} does not answer a read',
            f'dmsetup create {name} -u CINDER-DMCLONE-{name[8:]} --table '
            '"0 8 zero"; dmsetup suspend ' + name,
            f'dmsetup resume {name}; {remove}')
        self.assert_catches(
            'device stray is suspended',
            'dmsetup create stray --table "0 8 zero"; dmsetup suspend stray',
            'dmsetup resume stray; dmsetup remove --retry stray')
        self.assert_catches(
            'device stray has a loaded table that is not live',
            'dmsetup create stray --table "0 8 zero"; '
            'dmsetup load stray --table "0 8 error"',
            'dmsetup remove --retry stray')
        self.assertEqual([], self.checker.check())

    def test_volumes_and_tags(self) -> None:
        lv = uuid.uuid4()
        for name in (f'volume-{lv}', f'dmclone-meta-{lv}'):
            self.assert_catches(
                f'LV {name} is not justified',
                f'lvcreate -qq -y -Wn -L 4M -n {name} cinder-volumes',
                f'lvremove -qq -y cinder-volumes/{name}')
        volume = self.volume(self.node1)
        self.assertEqual([], self.checker.check())
        name = f'cinder-volumes/volume-{volume}'
        self.pause()
        for tag in (f'dmclone.copy/2/{volume}',
                    f'dmclone.lent/2/{volume}/node2#dmclone/{lv}/vg/iqn'):
            self.assert_catches(
                tag, f'lvchange -qq --addtag {tag} {name}',
                f'lvchange -qq --deltag {tag} {name}')
        self.assert_catches(
            'is missing', f'lvrename -qq {name} hidden',
            f'lvrename -qq cinder-volumes/hidden volume-{volume}')
        own = f'dmclone.own/1/{volume}'
        self.assert_catches(
            f'has tags [], not {own}', f'lvchange -qq --deltag {own} {name}',
            f'lvchange -qq --addtag {own} {name}')

    def test_targets(self) -> None:
        volume = self.volume(self.node1)
        attachment = self.lab.reserve(volume)
        connector = {'host': 'elsewhere', 'initiator': STRANGER}
        found = self.lab.cinder(
            'PUT', f'/attachments/{attachment}',
            {'attachment': {'connector': connector}})['attachment']
        iqn = found['connection_info']['target_iqn']
        self.assertEqual([], self.checker.check())
        self.pause()
        self.assert_catches(
            f'target {IQN} is not justified', f'mkdir -p {TARGET}/tpgt_1',
            f'rmdir {TARGET}/tpgt_1 {TARGET}')
        hba = '/sys/kernel/config/target/core/iblock_9'
        self.assert_catches(
            'backstore stray of /dev/ubdb is not justified',
            f'mkdir -p {hba}/stray; echo /dev/ubdb >{hba}/stray/udev_path',
            f'rmdir {hba}/stray {hba}')
        acl = f'/sys/kernel/config/target/iscsi/{iqn}/tpgt_1/acls/extra'
        self.assert_catches("admits ['extra'", f'mkdir {acl}',
                            f'rmdir {acl}')

    def test_imports(self) -> None:
        self.assert_catches(
            f'node record of {IQN}', f'mkdir -p {RECORD}',
            f'rm -r /etc/iscsi/nodes/{IQN}')
        with self.foreign_session():
            findings = self.checker.check(0)
        self.assert_found('session with iqn.', findings)
        self.assert_found('imported disk sd', findings)
        self.assert_found('node record of iqn.', findings)

    @contextlib.contextmanager
    def foreign_session(self) -> Iterator[None]:
        """A session of node 2 that no attachment of node 2 justifies."""
        volume = self.volume(self.node1)
        attachment = self.lab.reserve(volume)
        connector = {'host': 'elsewhere',
                     'initiator': 'iqn.2026-01.lab.dmclone:node2'}
        data = self.lab.cinder(
            'PUT', f'/attachments/{attachment}',
            {'attachment': {'connector': connector}})['attachment'][
                'connection_info']
        self.addCleanup(base.logout, self.node2, data)
        base.login(self.node2, data)
        # The database forgets what the session was for.
        self.pause()
        other = "'{\"host\": \"elsewhere\", \"initiator\": \"iqn.other\"}'"
        where = f"where id = '{attachment}'"
        (kept,) = self.lab.sql(
            f'select connector from volume_attachment {where}')
        self.lab.sql(f'update volume_attachment set connector = {other} '
                     + where)
        try:
            yield
        finally:
            base.logout(self.node2, data)
            self.lab.sql('update volume_attachment set connector = '
                         f"'{kept[0]}' {where}")

    def test_rows(self) -> None:
        volume = self.volume(self.node1)
        other = f'node2@dmclone/{uuid.uuid4()}'
        self.pause()
        for text, value in ((' is still offered', f'1;offer={other}'),
                            (' still hydrates', f'1;from={other}')):
            self.lab.sql(f"update volumes set provider_id = '{value}' "
                         f"where id = '{volume}'")
            findings = self.checker.check(0)
            self.lab.sql("update volumes set provider_id = '1' "
                         f"where id = '{volume}'")
            self.assert_found(f'volume {volume}{text}', findings)
        self.assertEqual([], self.checker.check())
