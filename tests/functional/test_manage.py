# SPDX-License-Identifier: Apache-2.0
"""Logical volumes that somebody made by hand, in Cinder and out again."""
from __future__ import annotations

import re
import typing

from lab import look
from lab.attached import AttachedVolume
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

GROUP = look.GROUP
HOST = 'node1@dmclone#dmclone'
# Less than a GiB of Cinder's, in whole extents.
SHORT = 8 << 20


class ManageTest(base.FunctionalTest):

    def lv(self, name: str, *words: str) -> None:
        """An LV of the operator's on node 1."""
        self.node1.run(['lvcreate', '-qy', '-n', name, *words])
        self.addCleanup(self.node1.run, f'lvremove -qfy {GROUP}/{name}',
                        check=False)

    def manage(self, name: str) -> str:
        """Ask Cinder to manage an LV of node 1; the volume's id."""
        volume = str(self.lab.cinder('POST', '/manageable_volumes', {
            'volume': {'host': HOST, 'name': self.id(), 'bootable': False,
                       'ref': {'source-name': name}}})['volume']['id'])
        self.volumes.append(volume)
        return volume

    def unmanage(self, volume: str, node: LabNode) -> AttachedVolume:
        """Take a volume out of Cinder; where its data are then."""
        self.lab.cinder('POST', f'/volumes/{volume}/action',
                        {'os-unmanage': {}})
        self.wait(f'end of volume {volume}', lambda: not self.lab.sql(
            f"select id from volumes where deleted = 0 and id = '{volume}'"))
        self.volumes.remove(volume)
        name = f'unmanaged-{volume}'
        self.addCleanup(node.run, f'lvremove -qfy {GROUP}/{name}')
        self.assertEqual(frozenset(), look.volumes(node)[name])
        return AttachedVolume('', volume, node, f'/dev/{GROUP}/{name}')

    @environment.only_long
    def test_in_and_out_on_another_node(self) -> None:
        """With what it had when Cinder did not know it, and every write."""
        self.lv('mail', '-Wn', '-Zn', '-L', f'{self.gib - SHORT}b', GROUP)
        image = self.image(self.gib - SHORT)
        image.fill(AttachedVolume('', '', self.node1, f'/dev/{GROUP}/mail'))
        volume = self.manage('mail')
        self.lab.wait_volume(volume, 'available')
        self.assertEqual((1, '1'), (self.row(volume).size,
                                    self.row(volume).provider_id))
        at = self.attach(volume, self.node2)
        self.assert_holds(image, at)
        image.write(at, 7, 24, 400)
        self.wait_complete(volume)
        self.detach(at)
        self.wait('the end of its attachment', lambda: self.lab.volume(
            volume)['status'] == 'available')
        out = self.unmanage(volume, self.node2)
        self.assert_holds(image, out)
        # Nothing looks at it any more, whatever has it looked for.
        self.node2.volume.kill()
        self.start_services(self.node2)
        self.assert_holds(image, out)

    def test_what_is_refused(self) -> None:
        """As LVM itself shows it; unit tests have the rest.

        What is deleted then is the volume that it did not become. The API
        itself refuses the LVs of volumes.
        """
        ours = f'volume-{self.row(self.volume(self.node1)).lv}'
        self.assertIn('already managed',
                      self.error_of(lambda: self.manage(ours)))
        extents = ('-Wn', '-Zn', '-l', '2')
        self.lv('origin', *extents, GROUP)
        self.lv('state', '-s', '-l', '2', f'{GROUP}/origin')
        self.lv('used', *extents, GROUP)
        before = look.volumes(self.node1)
        self.node1.run('dmsetup create user --table "0 8 linear '
                       f'/dev/{GROUP}/used 0"')
        self.addCleanup(self.node1.run, 'dmsetup remove user')
        refused = {
            'origin': 'has or is a snapshot',
            'state': 'has or is a snapshot', 'used': 'in use on this node',
            'missing': 'has no such LV'}
        made = {name: self.manage(name) for name in refused}
        log = self.node1.volume.log
        for name, reason in refused.items():
            self.wait(f'refusal of {name}', lambda: self.row(
                made[name]).status == 'error_managing')
            # Cinder logs it when it has set the status.
            self.wait(f'reason for {name}', lambda: re.search(
                f'{name}.*{reason}', log.read_text(errors='replace')))
        listed = {entry['reference']['source-name']: entry['reason_not_safe']
                  for entry in self.lab.cinder(
                      'GET', f'/manageable_volumes/detail?host={HOST}'
                      .replace('#', '%23'))['manageable-volumes']}
        self.assertNotIn(ours, listed)
        self.assertIn('in use', listed['used'])
        for volume in made.values():
            self.lab.delete_volume(volume)
            self.volumes.remove(volume)
        self.assertEqual(before, look.volumes(self.node1))
