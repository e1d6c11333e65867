# SPDX-License-Identifier: Apache-2.0
"""The lender cannot be reached for a while: I/O waits, it never fails."""
from __future__ import annotations

import copy
import time

from lab import look
from lab.agent import Command, Result
from lab.attached import AttachedVolume
from tests.functional import base
from tests.functional import environment
from tests.functional import test_snapshots

BLOCKS = base.GIB // 4096
END = BLOCKS - 64
# Another that is not there yet.
PARTLY = END - 128

# Run on the lender: another disk behind the same name and secret.
_DECOY = r'''
import pathlib, rtslib_fb as lib
target = lib.Target(lib.FabricModule('iscsi'), '{iqn}')
tpg = next(target.tpgs)
acl = next(tpg.node_acls)
keep = acl.node_wwn, acl.chap_userid, acl.chap_password
portal = next(tpg.network_portals)
address = portal.ip_address, portal.port
storage = next(tpg.luns).storage_object
target.delete()
storage.delete()
storage = lib.BlockStorageObject('decoy', dev='/dev/cinder-volumes/decoy',
                                 wwn='{serial}', readonly=True)
tpg = lib.TPG(lib.Target(lib.FabricModule('iscsi'), '{iqn}'), 1)
tpg.set_attribute('authentication', '1')
tpg.set_attribute('generate_node_acls', '0')
lib.LUN(tpg, 0, storage)
acl = tpg.node_acl(keep[0])
acl.mapped_lun(0, 0, write_protect=True)
acl.chap_userid, acl.chap_password = keep[1:]
tpg.network_portal(*address)
tpg.enable = True
'''


class OutageTest(test_snapshots.SnapshotTestCase):
    """Node 2 hydrates from node 1, and the way between them is cut."""

    def hydrating(self) -> tuple[AttachedVolume, base.Image]:
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2, crawl=True)
        # The source has its path, the copying runs.
        self.wait('the copying', lambda: 'no_hydration' not in look.dmsetup(
            self.node2, 'status', '--noflush', '--target', 'clone'))
        self.assert_hydrating(at)
        return at, image

    def read(self, at: AttachedVolume, block: int) -> Command:
        """A read of a block that is not there yet, under way."""
        return self.node2.popen(
            ['dd', f'if={at.path}', 'of=/dev/null', 'bs=4096', 'count=1',
             f'skip={block}', 'iflag=direct'])

    def ends(self, *commands: Command) -> list[Result]:
        """The commands' results; none may have failed."""
        results = [command.wait(600) for command in commands]
        for result in results:
            self.assertEqual(0, result.code, result.stderr)
        return results

    def path_state(self, volume: str) -> str:
        """'A' or 'F', as the source of a volume has it."""
        name = f'dmclone-source-{self.row(volume).lv}'
        words = (look.device(self.node2, name, 'status', '--noflush')
                 or '').split()
        return next((word for before, word in zip(words, words[1:])
                     if ':' in before and word in 'AF'), '')

    def cut_off_soon(self) -> None:
        """Cut the lender off, and give it up sooner than in 120 s."""
        self.give_up_soon(self.node2)
        self.node1.partition()

    def fail_path(self, at: AttachedVolume) -> Command:
        """Cut the lender off until the path has failed; a waiting read."""
        self.cut_off_soon()
        read = self.read(at, END)
        self.wait('failure of the path',
                  lambda: self.path_state(at.volume) == 'F')
        self.assertIsNone(read.poll())
        return read

    def finish(self, at: AttachedVolume, image: base.Image) -> None:
        self.release(at, self.node1)
        self.wait_complete(at.volume)
        self.assert_holds(image, at)

    def test_partition_of_25_seconds_only_delays_io(self) -> None:
        at, image = self.hydrating()
        before = self.hydrated(at)
        self.node1.partition()
        cut = time.monotonic()
        read = self.read(at, END)
        # A part of a region: the rest of it has to come from the lender.
        write = self.node2.popen(
            ['dd', 'if=/dev/zero', f'of={at.path}', 'bs=512', 'count=1',
             f'seek={8 * PARTLY}', 'oflag=direct'])
        # All of it: nothing has to, and it does not wait.
        image.write(at, END - 64, 1)
        time.sleep(max(0, cut + 25 - time.monotonic()))
        self.assertIsNone(read.poll())
        self.assertIsNone(write.poll())
        self.node1.heal()
        self.ends(read, write)
        image.write(at, PARTLY, 1)
        assert before is not None
        self.wait('progress of the hydration',
                  lambda: (self.hydrated(at) or (0, 0))[0] > before[0] + 2)
        self.finish(at, image)

    def test_failed_path_is_reinstated_for_the_right_disk_only(self) -> None:
        """An outage longer than open-iscsi's replacement time-out.

        When it is over, another disk has the name of the old one.
        """
        at, image = self.hydrating()
        (iqn,) = look.sessions(self.node2)
        self.node1.run(f'lvcreate -qq -y -Wn -L {base.GIB}b -n decoy '
                       'cinder-volumes')
        # When the service has put the right disk in its place.
        self.addCleanup(self._remove_decoy)
        self.addCleanup(self.restore)
        read = self.fail_path(at)
        self.node1.volume.kill()
        self.node1.run([f'{self.lab.venv}/bin/python', '-c', _DECOY.format(
            iqn=iqn, serial=at.volume[::-1])])
        self.node1.heal()
        self.wait('refusal of the disk', lambda: 'is not the lender\'s '
                  'volume' in self.node2.volume.new_log())
        self.assertIsNone(read.poll())
        self.assertEqual('F', self.path_state(at.volume))
        # The lender's service puts the right disk there again.
        self.start_services(self.node1)
        self.ends(read)
        self.wait('the path', lambda: self.path_state(at.volume) == 'A')
        self.finish(at, image)

    def _remove_decoy(self) -> None:
        self.wait('end of the decoy', lambda: self.node1.run(
            'rmdir /sys/kernel/config/target/core/*/decoy; '
            'lvremove -qq -y cinder-volumes/decoy', check=False).code == 0)

    def test_stuck_read_does_not_freeze_the_swap(self) -> None:
        """H16: complete by overwriting, a read waits for a dead lender."""
        volume = self.volume(self.node1)
        self.freeze(self.node2, 'dm.message:before:enable_hydration')
        at = self.attach(volume, self.node2)
        self.wait_frozen(self.node2)
        self.cut_off_soon()
        read = self.read(at, END)
        image = self.image()
        image.fill(at)
        self.assertIsNone(read.poll())
        self.thaw(self.node2)
        self.wait_complete(volume)
        self.ends(read)
        self.assert_holds(image, at)
        self.node1.heal()

    @environment.only_long
    def test_stuck_read_below_a_snapshot(self) -> None:
        """The same of a volume whose snapshot hydrates, too."""
        at, image = self.hydrating()
        then = copy.deepcopy(image)
        snapshot = self.snapshot(at.volume)
        read = self.fail_path(at)
        image.fill(at)
        self.ends(read)
        self.wait_complete(at.volume)
        self.assert_holds(image, at)
        self.node1.heal()
        self.release(at, self.node1)
        born = self.attach(self.born(snapshot_id=snapshot), self.node2)
        self.assert_holds(then, born)

    def test_delete_with_the_lender_away_does_not_hang(self) -> None:
        """H17: copies under way wait for a lender that does not answer."""
        at, _ = self.hydrating()
        self.node1.partition()
        self.detach(at)
        self.lab.delete_volume(at.volume)
        self.node1.heal()

    def test_a_disk_that_the_kernel_has_given_up_is_used_again(self) -> None:
        """Error handling that fails leaves it so, though its session works.
        """
        at, image = self.hydrating()
        self.node2.run('for state in /sys/class/iscsi_session/*/device/'
                       'target*/*/state; do echo offline >"$state"; done')
        self.ends(self.read(at, END), self.read(at, END // 2))
        self.finish(at, image)

    def test_bad_sector_of_the_lender_does_not_stop_other_reads(self) -> None:
        """H19: LIO reports it like a path that fails."""
        at, image = self.hydrating()
        (loan,) = [name for name in look.devices(self.node1)
                   if name.startswith('dmclone-loan-')]
        whole, half = base.GIB // 512, base.GIB // 1024
        size, device = look.tables(self.node1)[loan].split()[1:4:2]
        self.assertEqual(str(whole), size)
        table = (f'0 {half} linear {device} 0\n{half} 8 error\n'
                 f'{half + 8} {half - 8} linear {device} {half + 8}\n')
        self.node1.run(f'dmsetup load --readonly {loan} && '
                       f'dmsetup resume {loan}', input=table)
        bad = self.read(at, BLOCKS // 2)
        self.wait('failure of the path',
                  lambda: self.path_state(at.volume) == 'F')
        self.ends(self.read(at, END), self.read(at, END // 2))
        self.assertIsNone(bad.poll())
        self.node1.run(f'dmsetup load --readonly {loan} && '
                       f'dmsetup resume {loan}',
                       input=f'0 {whole} linear {device} 0\n')
        self.ends(bad)
        self.finish(at, image)
