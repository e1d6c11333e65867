# SPDX-License-Identifier: Apache-2.0
"""A volume follows its server, with every block it ever got."""
from __future__ import annotations

import concurrent.futures

from lab import look
from tests.functional import base
from tests.functional import environment
from tests.functional import faults

BLOCKS = base.GIB // 4096


class RelocationTest(base.FunctionalTest):
    """The main job, through the public API."""

    def test_data_is_right_before_during_and_after_hydration(self) -> None:
        """Of a volume that has a whole GiB, whatever the others have."""
        volume, image = self.filled(self.node1,
                                    environment.FULL_GIB // base.GIB)
        at = self.attach(volume, self.node1)
        written = self.checksum(at)
        self.detach(at)
        self.freeze(self.node2, faults.COPYING)
        at = self.attach(volume, self.node2)
        self.wait_frozen(self.node2)
        # Nothing is here yet.
        self.assertEqual('', image.difference(at, size=64 << 20))
        self.assert_hydrating(at)
        self.thaw(self.node2)
        # While it arrives.
        self.assertEqual(written, self.checksum(at))
        self.wait_complete(volume)
        self.assertEqual(written, self.checksum(at))
        self.assertEqual('node2@dmclone#dmclone', self.row(volume).host)
        # A server started on the wrong node must not find its disk.
        self.assertEqual(
            '/dev/mapper/' + look.front('node2', self.row(volume).lv), at.path)
        gone = self.node1.run(['test', '-e', at.path], check=False)
        self.assertEqual(1, gone.code)
        # And back again.
        self.detach(at)
        back = self.attach(volume, self.node1)
        self.assertEqual(written, self.checksum(back))
        self.wait_complete(volume)
        self.assert_holds(image, back)

    def test_writes_during_hydration_survive(self) -> None:
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        # Single blocks all over, whole regions in a row, the very end.
        image.write(at, 7, 24, BLOCKS // 25)
        image.write(at, BLOCKS // 2, 160)
        image.write(at, BLOCKS - 16, 16)
        self.assertEqual('', image.difference(
            at, base.GIB // 2, base.GIB // 2 + (2 << 20)))
        self.assert_hydrating(at)
        self.release(at, self.node1)
        # Also while it runs at full speed, and over what has arrived.
        image.write(at, 3, 200, BLOCKS // 201)
        self.wait_complete(volume)
        image.write(at, 11, 10, BLOCKS // 11)
        self.assert_holds(image, at)

    @environment.only_long
    def test_two_volumes_move_in_opposite_directions(self) -> None:
        there, image1 = self.filled(self.node1)
        back, image2 = self.filled(self.node2)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            moves = [pool.submit(self.attach, there, self.node2),
                     pool.submit(self.attach, back, self.node1)]
            at2, at1 = [move.result() for move in moves]
        image1.write(at2, 5, 30, BLOCKS // 31)
        image2.write(at1, 5, 30, BLOCKS // 31)
        self.wait_complete(there)
        self.wait_complete(back)
        self.assert_holds(image1, at2)
        self.assert_holds(image2, at1)

    @environment.only_long
    def test_the_old_copy_goes_only_after_completion(self) -> None:
        volume, image = self.filled(self.node1)
        old = self.row(volume).lv
        at = self.attach_slowly(volume, self.node1, self.node2)
        new = self.row(volume).lv
        # Whatever makes the lender look, it keeps its copy.
        self.node1.volume.kill()
        self.start_services(self.node1)
        self.assertIn(f'dmclone.1.lent/2/{volume}/node2#dmclone/{new}',
                      ' '.join(look.volumes(self.node1)[f'volume-{old}']))
        self.assert_hydrating(at)
        self.release(at, self.node1)
        self.wait('release of the old copy', lambda: (
            f'volume-{old}' not in look.volumes(self.node1)))
        self.assertNotIn(';', self.row(volume).provider_id)
        self.assert_holds(image, at)

    def test_delete_while_hydrating(self) -> None:
        volume, _ = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2, crawl=True)
        self.detach(at)
        self.assert_hydrating(at)
        self.lab.delete_volume(volume)

    def test_client_creates_extends_and_migrates(self) -> None:
        """With the real ``openstack`` command."""
        made = self.lab.openstack('volume', 'create', '--size', '1', 'moved')
        volume = made['id']
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        nodes = {node.name: node for node in self.lab.nodes}
        home = nodes.pop(self.row(volume).node)
        (other,) = nodes.values()
        self.lab.openstack('volume', 'set', '--size', '2', volume)
        self.wait('the extension', lambda: self.row(volume).size == 2
                  and self.row(volume).status == 'available')
        at = self.attach(volume, home)
        image = self.image()
        image.write(at, 1, 100, 2 * BLOCKS // 101)
        self.detach(at)
        self.lab.openstack('volume', 'migrate', '--host',
                           f'{other.name}@dmclone#dmclone', volume)
        self.wait('the migration', lambda: self.lab.volume(volume)[
            'migration_status'] == 'success')
        self.assertEqual(other.name, self.row(volume).node)
        at = self.attach(volume, other)
        self.assertEqual('', image.blocks_difference(at))
        self.wait_complete(volume)
        self.assertEqual('', image.blocks_difference(at))

    def test_another_type(self) -> None:
        """In place, under a server; Cinder would migrate it otherwise."""
        kind = self.lab.cinder('POST', '/types', {'volume_type': {
            'name': 'gold', 'extra_specs': {
                'volume_backend_name': 'dmclone', 'site:tier': 'gold'}}
            })['volume_type']['id']
        volume, image = self.filled(self.node1)
        former = self.lab.volume(volume)['volume_type']
        at = self.attach(volume, self.node1)
        before = self.row(volume)
        for name in ('gold', former):
            self.lab.cinder('POST', f'/volumes/{volume}/action', {
                'os-retype': {'new_type': name,
                              'migration_policy': 'never'}})
            self.wait(f'type {name}', lambda: self.lab.volume(volume)[
                'volume_type'] == name and self.row(volume) == before)
        self.lab.cinder('DELETE', f'/types/{kind}')
        self.assert_holds(image, at)

    def test_extend_while_hydrating(self) -> None:
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        self.detach(at)
        self.lab.wait_volume(volume, 'available')
        self.lab.extend_volume(volume, 2)
        self.assertEqual(2, self.row(volume).size)
        at = self.attach(volume, self.node2)
        self.assert_hydrating(at)
        # Across the old end, and up to the new one.
        tail = self.image()
        image.write(at, BLOCKS - 8, 8)
        tail.write(at, BLOCKS, 64)
        tail.write(at, 2 * BLOCKS - 16, 16)
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.assertEqual('', tail.blocks_difference(at))
