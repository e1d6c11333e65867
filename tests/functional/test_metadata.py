# SPDX-License-Identifier: Apache-2.0
"""The clone's own records: what they are trusted for."""
from __future__ import annotations

from lab import LabError, look
from tests.functional import base

# A second clone on a copy of the metadata tells what the disk knows.
_PROBE = '''
set -e
cd /dev/cinder-volumes
lvcreate -qq -y -Wn -L 4M -n probe-meta cinder-volumes
lvcreate -qq -y -Wn -L {size}b -n probe-data cinder-volumes
dd if=dmclone-meta-{lv} of=probe-meta bs=4M iflag=direct oflag=direct
dmsetup create probe-zero --table "0 {sectors} zero"
dmsetup create probe --table "0 {sectors} clone \
    /dev/cinder-volumes/probe-meta /dev/cinder-volumes/probe-data \
    /dev/mapper/probe-zero {region} 1 no_hydration"
'''
_REMOVE = '''
dmsetup remove --retry probe; dmsetup remove --retry probe-zero
lvremove -qq -y cinder-volumes/probe-meta cinder-volumes/probe-data
'''


class MetadataTest(base.FunctionalTest):
    """Node 2 hydrates from node 1."""

    def test_finish_believes_only_what_is_on_the_disk(self) -> None:
        """H7: the in-core count runs ahead."""
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        lv, clone = self.row(volume).lv, at.status()
        assert clone is not None
        # The first thing the swap does.
        self.freeze(self.node2, 'dm.apply:before:dmclone-source')
        self.release(at, self.node1)
        self.wait_frozen(self.node2)
        try:
            self.node2.run(_PROBE.format(
                lv=lv, size=base.GIB, sectors=base.GIB // 512,
                region=clone.region_size))
            status = self.node2.run('dmsetup status probe').stdout.split()
        finally:
            self.node2.run(_REMOVE, check=False)
            self.thaw(self.node2)
        self.assertEqual(f'{clone.total}/{clone.total}', status[6])
        self.wait_complete(volume)
        self.assert_holds(image, at)

    def test_lost_metadata_is_never_formatted_again(self) -> None:
        """H8: an empty clone would show the volume as it was long ago."""
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 5, 40, base.GIB // 4096 // 41)
        record, lv = self.row(volume).provider_id, self.row(volume).lv
        meta = f'/dev/cinder-volumes/dmclone-meta-{lv}'
        self.node2.reboot()
        self.node2.run('vgchange -qq -ay cinder-volumes; '
                       f'dd if={meta} of=/var/tmp/meta bs=4M; '
                       f'dd if=/dev/zero of={meta} bs=4M count=1 '
                       'oflag=direct')
        self.start_services(self.node2)
        self.wait('the refusal', lambda: 'cannot be assembled'
                  in self.node2.volume.new_log())
        self.assertEqual([], [
            name for name in look.devices(self.node2)
            if name.startswith(('dmclone-clone', 'dmclone-front'))])
        error = self.assertRaises(LabError, self.node2.volume.cli, 'activate')
        self.assertIn(volume, str(error))
        self.assertEqual(record, self.row(volume).provider_id)
        tags = look.volumes(self.node1)[f'volume-{volume}']
        self.assertTrue(any(tag.startswith('dmclone.1.lent') for tag in tags))
        # With its metadata it goes on.
        self.node2.run(f'dd if=/var/tmp/meta of={meta} bs=4M oflag=direct; '
                       'rm /var/tmp/meta')
        self.node2.volume.cli('activate')
        self.assertEqual('', image.blocks_difference(at))
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)
