# SPDX-License-Identifier: Apache-2.0
"""A node brings its volumes up from its disks alone."""
from __future__ import annotations

import typing
import uuid

from lab import CommandError, look
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = base.GIB // 4096
GROUP = look.GROUP


class BootTest(base.FunctionalTest):
    """``cinder-dmclone activate``, as the unit in the documentation."""

    def devices(self, node: LabNode) -> set[str]:
        """Names of dm devices."""
        return set(look.devices(node))

    def front(self, volume: str, node: LabNode) -> str:
        """Name of a volume's front on a node."""
        return look.front(node.name, self.row(volume).lv)

    def without_database(self) -> None:
        """No service finds out anything from now on."""
        self.addCleanup(self.with_database)
        self.lab.mariadb.stop()

    def with_database(self) -> None:
        """Undo that."""
        if not self.lab.mariadb.running():
            self.lab.mariadb.start()

    def prepare_copy(self) -> tuple[str, str]:
        """An LV on node 2 that was to be a volume's copy, and the volume."""
        lv, volume = str(uuid.uuid4()), self.volume(self.node1)
        # It would find out that nobody waits for the copy.
        self.node2.volume.kill()
        self.node2.run(f'lvcreate -qy -Wn -Zn -L 64m -n volume-{lv} '
                       f'--addtag dmclone.1.copy/2/{volume} {GROUP} && sync')
        return lv, volume

    def boot_alone(self) -> None:
        """Node 2 has lost its power, and reaches nobody afterwards."""
        self.node2.power_cut()
        self.without_database()
        self.node2.partition()
        self.node2.start()
        self.node2.wait_booted()

    def assert_told(self, *patterns: str) -> None:
        """An operator on node 2 is told all of that."""
        # It fails, as it has something to complain of.
        text = self.node2.volume.cli('status', check=False).stdout
        for pattern in patterns:
            self.assertRegex(text, pattern)

    def test_a_node_starts_without_the_control_plane(self) -> None:
        resting = self.volume(self.node2)
        volume, image = self.filled(self.node1)
        other = self.volume(self.node2)
        used = self.attach(other, self.node2)
        content = self.image()
        content.write(used, 0, 20, BLOCKS // 20)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 3, 20, BLOCKS // 21)
        self.assert_hydrating(at)
        lv, waiting = self.prepare_copy()
        fronts = {self.front(one, self.node2)
                  for one in (resting, other, volume)}
        lent = self.devices(self.node1)
        self.boot_alone()
        self.assertEqual(set(), fronts & self.devices(self.node2))
        self.node2.volume.cli('activate')
        found = self.devices(self.node2)
        self.assertEqual(fronts, fronts & found)
        self.assertEqual([], [name for name in found if lv in name
                              and name.startswith('dmclone-')])
        self.assertEqual('', content.blocks_difference(used))
        # What is here can be read; what is not is waited for.
        self.assertEqual('', image.blocks_difference(at))
        with self.node2.popen(
                ['dd', f'if={at.path}', 'bs=4096', f'skip={BLOCKS // 2 + 9}',
                 'count=1', 'iflag=direct', 'status=none']) as read:
            self.wait('the read to wait', lambda: 'D' in self.node2.run(
                'ps -C dd -o stat=', check=False).stdout)
            self.assert_told(
                f'volume {resting} generation 1, front closed',
                rf'volume {volume} generation 2, hydrated \[=* *\] \d+ % '
                rf'from node1@dmclone/{volume} \(NO PATH\), front open',
                f'{lv}  copy for volume {waiting}, not committed')
            self.assertIsNone(read.poll())
            # The lender keeps what it lends.
            self.assertEqual(lent, self.devices(self.node1))
            self.node2.heal()
            self.with_database()
            self.start_services(self.node2)
            self.assertEqual(0, read.wait(600).code)
        self.wait('end of a front that nobody needs', lambda: self.front(
            resting, self.node2) not in self.devices(self.node2))
        self.wait('end of the copy', lambda: (
            f'volume-{lv}' not in look.volumes(self.node2)))
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.assertEqual('', content.blocks_difference(used))

    @environment.only_long
    def test_everything_is_put_away_and_comes_back(self) -> None:
        self.volume(self.node2)
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 3, 20, BLOCKS // 21)
        self.assert_hydrating(at)
        error = self.assertRaises(CommandError, self.node2.volume.cli,
                                  'deactivate')
        self.assertIn('stop it first. Nothing was changed.', str(error))
        self.assert_hydrating(at)
        self.node2.volume.stop()
        volumes = look.volumes(self.node2)
        with self.node2.hold(at.path):
            before = self.devices(self.node2)
            error = self.assertRaises(CommandError, self.node2.volume.cli,
                                      'deactivate')
            self.assertIn(f'volume {volume}: {at.path} is in use: stop its '
                          'server or detach the volume', str(error))
            self.assertEqual(before, self.devices(self.node2))
        for _ in range(2):
            self.node2.volume.cli('deactivate')
            self.assertEqual([], [name for name in self.devices(self.node2)
                                  if name.startswith('dmclone-')])
            self.assertEqual(({}, []), (look.sessions(self.node2),
                                        look.targets(self.node2)))
            self.assertEqual(volumes, look.volumes(self.node2))
        self.node2.volume.cli('activate')
        self.assertEqual('', image.blocks_difference(at))
        self.start_services(self.node2)
        self.wait_complete(volume)
        self.assert_holds(image, at)

    @environment.only_long
    def test_a_lender_lends_again_at_boot(self) -> None:
        """Before its cinder-volume runs, and without a front of its own."""
        volume, image = self.filled(self.node1)
        old = self.row(volume).lv
        at = self.attach_slowly(volume, self.node1, self.node2)
        self.node1.reboot()
        self.node1.volume.cli('activate')
        found = {name for name in self.devices(self.node1) if old in name
                 and name.startswith('dmclone-')}
        self.assertEqual(
            {f'dmclone-loan-{old}-{self.row(volume).lv}'}, found)
        self.assertIn(f'{old}  lent to node2@dmclone/'
                      f'{self.row(volume).lv}',
                      self.node1.volume.cli('status').stdout)
        self.assertEqual(
            f'{volume}  node2@dmclone  in-use, hydrates from '
            f'node1@dmclone/{old}\n', self.node1.volume.cli('list').stdout)
        # The copying goes on; only its end needs the lender's service.
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.start_services(self.node1)
