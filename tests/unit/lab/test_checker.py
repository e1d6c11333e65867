# SPDX-License-Identifier: Apache-2.0
"""The checker of the labs sees every kind of leftover.

The texts are what a node of the lab said, with short identifiers. That its
commands say them is in tests/functional/test_checker.py.
"""

from __future__ import annotations

import dataclasses
import re
import typing
import unittest

import ddt

from lab import checker, inventory, look

GIB = 1 << 27
LV = 'e66a06cc-3df7-4092-8c0f-4ff41810038b'
SERVED = 'c3be0dd7-fb4e-4043-b6ac-01c3ba65a9d5'
OTHER = 'e8a35640-ace2-4dd3-b3da-814469719a82'
IQN = 'iqn.2010-10.org.openstack:dmclone-981fee3e822f96e3d5ce6d1bf7c80aed'
STRAY = 'iqn.2010-10.org.openstack:dmclone-' + '0' * 32
FRONT, STRAY_FRONT = (look.front('node1', lv) for lv in (LV, OTHER))
NODE1 = 'iqn.2026-01.lab.dmclone:node1'
STRANGER = 'iqn.2026-01.lab.dmclone:stranger'


def rows() -> list[checker.Row]:
    """One volume that a server on node 1 has, one that a stranger has."""
    return [checker.Row(LV, LV, 'node1@dmclone#dmclone', 2, 'in-use', '1',
                        ({'host': 'node1', 'initiator': NODE1},)),
            checker.Row(SERVED, SERVED, 'node1@dmclone#dmclone', 1, 'in-use',
                        '1', ({'host': 'elsewhere',
                               'initiator': STRANGER},))]


# What node 1 has for them.
LINES = f'''\
dm	cinder--volumes-volume--{LV.replace('-', '--')}	LVM-24NdiQ	L--w	1	Live
dm	cinder--volumes-volume--{SERVED.replace('-', '--')}	LVM-l2dVDC	L--w	1	Live
dm	{FRONT}	CINDER-DMCLONE-{FRONT[8:]}	L--w	0	Live
dm	dmclone-serve-{SERVED}	CINDER-DMCLONE-serve-{SERVED}	L--w	1	Live
table	cinder--volumes-volume--{LV.replace('-', '--')}	0 524288 linear 98:16 2048
table	cinder--volumes-volume--{SERVED.replace('-', '--')}	0 262144 linear 98:16 526336
table	{FRONT}	0 524288 linear 254:0 0
table	dmclone-serve-{SERVED}	0 262144 linear 254:1 0
lv	cinder-volumes	volume-{LV}	268435456	dmclone.1.own/1/{LV}
lv	cinder-volumes	volume-{SERVED}	134217728	dmclone.1.own/1/{SERVED}
target	{IQN}
acl	{IQN}	{STRANGER}
backstore	{IQN.partition(':')[2]}@{IQN.partition(':')[0]}:	/dev/mapper/dmclone-serve-{SERVED}
'''  # noqa: E501


def compare(text: str, found: list[checker.Row] | None = None,
            node: str = 'node1') -> list[str]:
    return checker.compare(node, inventory.parse(text),
                           rows() if found is None else found, GIB)


def device(name: str, attributes: str = 'L--w', tables: str = 'Live',
           table: str = '0 8 zero', uuid: str = '') -> str:
    return (f'dm	{name}	{uuid}	{attributes}	0	{tables}\n'
            f'table	{name}	{table}\n')


def copied(text: str, pattern: str, new: str) -> str:
    """The text with one thing in it changed."""
    changed, count = re.subn(pattern, new, text)
    assert count, pattern
    return changed


@ddt.ddt
class CheckerTest(unittest.TestCase):

    def test_what_rows_justify_is_no_finding(self) -> None:
        self.assertEqual([], compare(LINES))
        # Nor is it on a node that has nothing and is justified in nothing.
        self.assertEqual([], compare('', node='node2'))

    @ddt.data(
        # Devices.
        (f'device {STRAY_FRONT} is not justified',
         device(STRAY_FRONT,
                uuid=f'CINDER-DMCLONE-{STRAY_FRONT[8:]}')),
        ('device other is not justified',
         device('other', uuid=f'CINDER-DMCLONE-clone-{OTHER}')),
        ("device stray is nobody's", device('stray')),
        ('device stray is suspended', device('stray', 'L-sw')),
        ('device stray has a loaded table that is not live',
         device('stray', tables='Both')),
        ('device stray has a loaded table that is not live',
         device('stray', tables='Inactive')),
        ('process that waits in the kernel: 17 dd',
         'stuck	17 dd if=/dev/mapper/x\n'),
        # Volumes.
        (f'LV volume-{OTHER} is not justified',
         f'lv	cinder-volumes	volume-{OTHER}	4194304	\n'),
        (f'LV dmclone-meta-{LV} is not justified (tags '
         f"['dmclone.1.meta/{LV}/1/'])",
         f'lv	cinder-volumes	dmclone-meta-{LV}	4194304	'
         f'dmclone.1.meta/{LV}/1/\n'),
        # Targets.
        (f'target {STRAY} is not justified', f'target	{STRAY}\n'),
        ('backstore stray of /dev/ubdb is not justified',
         'backstore	stray	/dev/ubdb\n'),
        (f"target {IQN} admits ['extra', '{STRANGER}'], not",
         f'acl	{IQN}	extra\n'),
        # Imports.
        (f'session with {STRAY} (LOGGED_IN)',
         f'session	{STRAY}	LOGGED_IN\n'),
        ('imported disk sda (dmclone)', 'disk	sda	dmclone         \n'),
        (f'node record of {STRAY} in /etc/iscsi/nodes/{STRAY}',
         f'record	{STRAY}	/etc/iscsi/nodes/{STRAY}\n'))
    @ddt.unpack
    def test_one_thing_too_many(self, finding: str, line: str) -> None:
        self.assertTrue([text for text in compare(LINES + line)
                         if text.startswith(finding)], compare(LINES + line))

    @ddt.data(
        (f'device {FRONT} is missing',
         f'(dm|table)	{FRONT}	.*\n', ''),
        (f'device dmclone-serve-{SERVED} is missing',
         f'(dm|table)	dmclone-serve-{SERVED}	.*\n', ''),
        (f'device {FRONT} is not linear',
         '0 524288 linear 254:0 0', '0 524288 clone 254:3 254:0 254:2 128'),
        (f"device {FRONT} has the uuid 'other'",
         f'CINDER-DMCLONE-{FRONT[8:]}', 'other'),
        (f'LV volume-{LV} of volume {LV} is missing', f'lv.*volume-{LV}.*\n',
         ''),
        (f'LV volume-{LV} has 268435455 bytes, not 2 GiB', '268435456',
         '268435455'),
        (f'LV volume-{LV} has tags [], not dmclone.1.own/1/{LV}',
         f'dmclone.1.own/1/{LV}', ''),
        (f"LV volume-{LV} has tags ['dmclone.1.lent/2/x', "
         f"'dmclone.1.own/1/{LV}']",
         f'dmclone.1.own/1/{LV}', f'dmclone.1.own/1/{LV},dmclone.1.lent/2/x'),
        (f'LV volume-{LV} has tags', f'dmclone.1.own/1/{LV}',
         f'dmclone.1.own/2/{LV}'),
        (f'/dev/mapper/dmclone-serve-{SERVED} is not exported',
         'backstore.*\n', ''),
        (f'target {IQN} is missing', '(target|acl).*\n', ''),
        (f'target {IQN} admits []', 'acl.*\n', ''))
    @ddt.unpack
    def test_one_thing_that_is_wrong(self, finding: str, pattern: str,
                                     new: str) -> None:
        found = compare(copied(LINES, pattern, new))
        self.assertTrue([text for text in found if text.startswith(finding)],
                        found)

    def test_words_of_lvm_are_no_volume(self) -> None:
        self.assertEqual([], compare(
            LINES + 'lv	WARNING: Device for PV x not found\n'))

    def test_an_initiator_that_is_served_here_may_have_a_session(
            self) -> None:
        there = dataclasses.replace(
            rows()[0], host='node2@dmclone#dmclone', connectors=(
                {'host': 'elsewhere', 'initiator': NODE1},))
        line = f'session	{STRAY}	LOGGED_IN\n'
        self.assertNotEqual([], compare(line, []))
        self.assertEqual([], compare(line, [there]))


@ddt.ddt
class RowTest(unittest.TestCase):

    def unsettled(self, **changes: typing.Any) -> list[str]:
        row = dataclasses.replace(rows()[0], **changes)
        return list(checker.unsettled(row, {'node1', 'node2'}))

    def test_a_volume_at_rest(self) -> None:
        self.assertEqual([], self.unsettled())
        self.assertEqual([], self.unsettled(status='attaching'))

    @ddt.data(
        ('still hydrates', {'provider_id': f'2;from=node2@dmclone/{OTHER}'}),
        ('is still offered', {'provider_id': f'1;offer=node2@x/{OTHER}'}),
        ('is on node9@dmclone#dmclone', {'host': 'node9@dmclone#dmclone'}),
        ('is deleting', {'status': 'deleting'}))
    @ddt.unpack
    def test_one_that_is_not(self, words: str,
                             changes: dict[str, str]) -> None:
        (found,) = self.unsettled(**changes)
        self.assertIn(f'volume {LV} {words}', found)
