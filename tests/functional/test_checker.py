# SPDX-License-Identifier: Apache-2.0
"""The checker sees leftovers on a real node.

Which, says tests.unit.lab.test_checker. Here is shown that the commands by
which it looks see what there is.
"""
from __future__ import annotations

import uuid

from lab import look
from tests.functional import base

IQN = 'iqn.2010-10.org.openstack:dmclone-' + '0' * 32
TARGET = f'/sys/kernel/config/target/iscsi/{IQN}'
HBA = '/sys/kernel/config/target/core/iblock_9'
RECORD = f'/etc/iscsi/nodes/{IQN}'
# A node's own initiator.
NODE2 = 'iqn.2026-01.lab.dmclone:node2'
LV = uuid.uuid4()
FRONT = look.front('node1', str(LV))

# One of each kind, on node 1; a device whose reads wait is among them.
_PLANT = f'''
dmsetup create {FRONT} -u CINDER-DMCLONE-{FRONT[8:]} --table "0 8 zero"
dmsetup suspend {FRONT}
dmsetup create stray --table "0 8 zero"
dmsetup load stray --table "0 8 error"
lvcreate -qq -y -Wn -L 4M -n volume-{LV} cinder-volumes
lvchange -qq --addtag dmclone.1.copy/2/{LV} cinder-volumes/volume-{LV}
mkdir -p {TARGET}/tpgt_1 {HBA}/stray {RECORD}/10.99.1.1,3260,1
echo /dev/ubdb >{HBA}/stray/udev_path
mkdir /sys/kernel/config/target/iscsi/$1/tpgt_1/acls/extra
'''
_UPROOT = f'''
rmdir /sys/kernel/config/target/iscsi/$1/tpgt_1/acls/extra
rm -r {RECORD}
rmdir {HBA}/stray {HBA} {TARGET}/tpgt_1 {TARGET}
lvremove -qq -y cinder-volumes/volume-{LV}
dmsetup remove --retry stray
dmsetup resume {FRONT}; dmsetup remove --retry {FRONT}
'''


class CheckerTest(base.FunctionalTest):
    """Node 1 serves a volume to node 2, which is not justified for long."""

    def test_every_kind_of_leftover(self) -> None:
        volume = self.volume(self.node1)
        # No server's: one of a node under another name is refused.
        made = self.lab.cinder('POST', '/attachments', {'attachment': {
            'volume_uuid': volume, 'connector': {
                'host': 'elsewhere', 'initiator': NODE2}}})['attachment']
        attachment, info = made['id'], made['connection_info']
        self.addCleanup(base.logout, self.node2, info)
        base.login(self.node2, info)
        self.assertEqual([], self.checker.check())
        # The service would repair what is planted.
        self.addCleanup(self.node1.volume.resume)
        self.node1.volume.pause()
        iqn = info['target_iqn']
        self.addCleanup(self.node1.run, ['sh', '-c', _UPROOT, 'sh', iqn],
                        check=False)
        self.node1.run(['sh', '-c', _PLANT, 'sh', iqn])
        kept = self.rewrite(attachment, '{"host": "elsewhere", '
                            '"initiator": "iqn.other"}')
        self.lab.sql('update volumes set provider_id = '
                     f"'1;offer=node2@dmclone/{LV}' where id = '{volume}'")
        findings = self.checker.look()
        self.lab.sql("update volumes set provider_id = '1' "
                     f"where id = '{volume}'")
        self.rewrite(attachment, kept)
        for text in (
                f'device {FRONT} is not justified',
                f'device {FRONT} is suspended',
                f'device {FRONT} does not answer a read',
                'device stray has a loaded table that is not live',
                f"LV volume-{LV} is not justified (tags ['dmclone.1.copy/2/",
                f'target {IQN} is not justified',
                'backstore stray of /dev/ubdb is not justified',
                f"target {iqn} admits ['extra', '{NODE2}'], not "
                "['iqn.other']",
                f'node record of {IQN}', f'session with {iqn} (LOGGED_IN)',
                'imported disk sd', f'node record of {iqn}',
                f'volume {volume} is still offered'):
            self.assertTrue([each for each in findings if text in each],
                            f'{text!r} is not in {findings}')

    def rewrite(self, attachment: str, connector: str) -> str:
        """Change what the database has of an attachment; what it had."""
        where = f"where id = '{attachment}'"
        ((kept,),) = self.lab.sql(
            f'select connector from volume_attachment {where}')
        self.lab.sql('update volume_attachment set connector = '
                     f"'{connector}' {where}")
        return str(kept)
