# SPDX-License-Identifier: Apache-2.0
"""A node is lost, and an operator decides what becomes of its volumes."""
from __future__ import annotations

import re
import typing

from lab import look
from lab.agent import Result
from lab.attached import AttachedVolume
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = base.GIB // 4096


def said(found: Result) -> str:
    """The one line in which the command says why it refuses."""
    line, = (line for line in found.stderr.splitlines()
             if line.startswith('cinder-dmclone: '))
    return line


class LostTest(base.FunctionalTest):
    """Node 2 has a volume that hydrates from node 1, and one is lost."""

    words: tuple[str, ...]

    @property
    def teller(self) -> LabNode:
        """The node that is not lost."""
        raise NotImplementedError

    def decide(self, volume: str, *words: str) -> Result:
        """Run the command; its result."""
        verb, *others = self.words
        return self.teller.volume.cli(verb, volume, *others, *words,
                                      check=False)

    def assert_refused(self, volume: str, why: str, code: int = 1) -> None:
        """One line says why, and the row is as it was."""
        before = self.row(volume) if code == 1 else None
        found = self.decide(volume, '--yes')
        self.assertEqual((code, ''), (found.code, found.stdout),
                         found.stderr)
        self.assertIn(why, said(found))
        self.assertIn('Nothing was changed', said(found))
        if before:
            self.assertEqual(before, self.row(volume))

    def told(self, volume: str) -> str:
        """The plan, when the command is refused no more."""
        found = self.decide(volume)
        return found.stdout if found.code == 0 else ''

    def done(self, volume: str) -> None:
        """Have it done."""
        found = self.decide(volume, '--yes')
        self.assertEqual((0, 'Done.'), (
            found.code, (found.stdout.splitlines() or [''])[-1]),
            found.stderr)


@environment.only_long
class RecoverTest(LostTest):
    """It is node 2."""

    words = 'recover', '--from-lender'

    @property
    def teller(self) -> LabNode:
        return self.node1

    def test_what_was_lent_is_the_volume_again(self) -> None:
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        # This is given up.
        self.image().write(at, 3, 20, BLOCKS // 21)
        self.assert_hydrating(at)
        self.assert_refused('9c0a7c54-8f0d-4d5c-9f43-5bd7a3a62fd1',
                            'the database has no volume', 2)
        self.assert_refused(volume, 'is logged in to this node')
        self.node2.volume.kill()
        self.assert_refused(volume, 'is logged in to this node')
        lost = self.row(volume)
        self.node2.power_cut()
        plan = self.wait('node 2 to count as down', lambda: self.told(volume))
        self.assertEqual(lost, self.row(volume))
        self.assertIn(f'Volume {volume} becomes node1@dmclone/{volume} again',
                      plan)
        self.assertIn('gives up: all that was written to it since, on '
                      'node2@dmclone\n', plan)
        self.done(volume)
        self.assert_refused(volume, 'it is on this node')
        self.detach(at)
        again = self.attach(volume, self.node1)
        self.assert_holds(image, again)
        self.comes_back(at, lost.lv)
        self.assert_holds(image, again)

    def comes_back(self, at: AttachedVolume, lv: str) -> None:
        """The lost node starts after all, and a server on it."""
        node = self.node2
        node.start()
        node.wait_booted()
        node.volume.cli('activate')
        with node.hold(at.path):
            node.volume.start()
            node.volume.wait_up()
            self.wait('the server there to be cut off', lambda: 'error' in (
                look.device(node, at.path.rpartition('/')[2], 'table') or ''))
            write = node.run(f'dd if=/dev/zero of={at.path} bs=4096 count=1 '
                             'oflag=direct', check=False)
            self.assertNotEqual(0, write.code)
            found = node.volume.cli('forget', lv, '--yes', check=False)
            self.assertEqual(1, found.code)
            self.assertIn('is in use. Nothing was changed.', said(found))
        self.wait('the report', lambda: 'the LV claims to be the volume' in (
            node.volume.new_log()))
        self.assertIn(f'volume-{lv}', look.volumes(node))
        # Its front goes when nobody has it open any more.
        plan = self.wait('the plan', lambda: node.volume.cli(
            'forget', lv, check=False).stdout)
        self.assertIn(f'gives up: what it says of itself: dmclone.1.own/2/'
                      f'{at.volume}\n', plan)
        self.assertIn(f'volume-{lv}', look.volumes(node))
        self.assertEqual('Done.', node.volume.cli(
            'forget', lv, '--yes').stdout.splitlines()[-1])
        self.wait('the end of the LV', lambda: (
            f'volume-{lv}' not in look.volumes(node)))

    def test_what_others_need_is_not_forgotten(self) -> None:
        volume = self.volume(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        before = self.volumes_of_lvm()
        for node, lv, code in (
                (self.node1, volume, 1), (self.node2, at.lv, 1),
                (self.node1, at.lv, 2), (self.node1, 'x', 2)):
            found = node.volume.cli('forget', lv, '--yes', check=False)
            self.assertEqual((code, ''), (found.code, found.stdout))
            self.assertIn('Nothing was changed.', said(found))
        self.assertEqual(before, self.volumes_of_lvm())
        self.release(at, self.node1)
        self.wait_complete(volume)

    def volumes_of_lvm(self) -> list[object]:
        return [look.volumes(node) for node in self.lab.nodes]


@environment.only_long
class ReleaseTest(LostTest):
    """It is a node that was removed long ago."""

    words = 'release', '--force'

    @property
    def teller(self) -> LabNode:
        return self.node1

    def test_a_loan_to_nobody(self) -> None:
        """As two power cuts leave it, of both nodes and of one again."""
        volume, image = self.filled(self.node1)
        self.assert_refused('x', 'this node has no LV', 2)
        self.assert_refused(volume, 'it is lent to nobody')
        lost = 'node9#dmclone/9c0a7c54-8f0d-4d5c-9f43-5bd7a3a62fd1'
        tag = (f'dmclone.1.lent/2/{volume}/{lost}/group/iqn.2026-01.lab:node9/'
               f'{self.gib}')
        self.node1.run(['lvchange', '--addtag', tag,
                        f'{look.GROUP}/volume-{volume}'])
        plan = self.told(volume)
        self.assertIn(f'It stays volume {volume}.\ngives up: what '
                      f'{lost.replace("#", "@")} may have', plan)
        self.assertIn(tag, look.volumes(self.node1)[f'volume-{volume}'])
        self.done(volume)
        self.assertNotIn(tag, look.volumes(self.node1)[f'volume-{volume}'])
        self.assert_refused(volume, 'it is lent to nobody')
        self.assert_holds(image, self.attach(volume, self.node1))

    def test_what_is_read_is_not_released(self) -> None:
        volume = self.volume(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        self.assert_refused(volume, 'take it back')
        self.release(at, self.node1)
        self.wait_complete(volume)


@environment.only_long
class GiveUpTest(LostTest):
    """It is node 1."""

    words = 'give-up',

    @property
    def teller(self) -> LabNode:
        return self.node2

    def io(self, at: AttachedVolume, *words: str) -> int:
        """Exit status of dd, which reads or writes past all caches."""
        return self.node2.run(['dd', 'status=none', *words],
                              check=False).code

    def read(self, at: AttachedVolume, first: int, size: int) -> int:
        return self.io(at, f'if={at.path}', 'of=/dev/null', f'bs={size}',
                       'count=1', f'skip={first // size}', 'iflag=direct')

    def write(self, at: AttachedVolume, first: int, size: int) -> int:
        return self.io(at, f'of={at.path}', 'if=/dev/zero', f'bs={size}',
                       'count=1', f'seek={first // size}', 'oflag=direct')

    def ranges(self, plan: str) -> list[tuple[int, int]]:
        """What is missing, from the first byte up to the second."""
        return [(int(first), int(last) + 1) for first, last in re.findall(
            r'^gives up: bytes (\d+) to (\d+)$', plan, re.MULTILINE)]

    def test_reads_of_what_is_missing_fail(self) -> None:
        volume, _ = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image = self.image()
        image.write(at, 3, 20, BLOCKS // 21)
        self.assert_hydrating(at)
        self.assert_refused(volume, 'node1@dmclone can be reached, and read')
        self.give_up_soon(self.node2)
        self.node1.power_cut()
        lost = self.node2.popen(
            ['dd', f'if={at.path}', 'of=/dev/null', 'bs=4096', 'count=1',
             f'skip={BLOCKS - 1}', 'iflag=direct'])
        before = self.row(volume)
        plan = self.wait('node 1 to count as down', lambda: self.told(volume))
        self.assertIsNone(lost.poll())
        self.assertEqual(before, self.row(volume))
        found = at.status()
        assert found is not None
        region = int(found.region_size.to_bytes())
        self.assertEqual(
            region * (int(found.total) - int(found.hydrated)),
            sum(end - first for first, end in self.ranges(plan)))
        table = look.device(self.node2, at.clone, 'table')
        self.done(volume)
        self.assertNotEqual(0, lost.wait(120).code)
        self.assertEqual(table, look.device(self.node2, at.clone, 'table'))
        self.check(at, image, self.ranges(plan), region)
        self.reboot(at)
        # A region less than before.
        first, end = self.ranges(plan)[-1]
        self.check(at, image, [(first, end - region)], region)
        self.start_services(self.node2)
        again = self.told(volume)
        self.assertIn('fail already', again)
        self.assertEqual((first, end - 2 * region), self.ranges(again)[-1])
        # When all of it was written nothing is missing any more.
        for first, end in self.ranges(again):
            self.node2.run(
                ['dd', 'if=/dev/zero', f'of={at.path}', f'bs={region}',
                 f'seek={first // region}', f'count={(end - first) // region}',
                 'oflag=direct', 'status=none'], timeout=base.LONG_SECONDS)
        self.wait_complete(volume)
        self.assertEqual('', image.blocks_difference(at))

    def test_the_lender_comes_back(self) -> None:
        """What was given up arrives after all, when the operator says so."""
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 3, 20, BLOCKS // 21)
        self.assert_hydrating(at)
        self.give_up_soon(self.node2)
        self.node1.power_cut()
        self.wait('node 1 to count as down', lambda: self.told(volume))
        self.done(volume)
        last = base.GIB - 4096
        self.wait('reads to fail', lambda: self.read(at, last, 4096))
        found = self.decide(volume, '--undo', '--yes')
        self.assertEqual(1, found.code)
        self.assertIn('Nothing was changed', said(found))
        self.assertNotEqual(0, self.read(at, last, 4096))
        self.node1.start()
        self.node1.wait_booted()
        self.start_services(self.node1)
        # Its return alone changes nothing.
        self.assertNotEqual(0, self.read(at, last, 4096))
        plan = self.decide(volume, '--undo')
        self.assertEqual(0, plan.code, plan.stderr)
        self.assertIn('which is there again', plan.stdout)
        self.assertNotEqual(0, self.read(at, last, 4096))
        found = self.decide(volume, '--undo', '--yes')
        self.assertEqual(0, found.code, found.stderr)
        self.wait('the read', lambda: self.read(at, last, 4096) == 0)
        self.assert_holds(image, at)
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)

    def check(self, at: AttachedVolume, image: base.Image,
              missing: list[tuple[int, int]], region: int) -> None:
        """What has arrived is there, what has not fails; write the last."""
        source = f'dmclone-source-{at.lv}'
        self.wait('the source', lambda: (look.device(
            self.node2, source, 'table') or '').split() == [
                '0', str(base.GIB // 512), 'error'])
        self.assertEqual('', image.blocks_difference(at))
        for first, end in missing:
            for place in (first, end - region):
                self.assertNotEqual(0, self.read(at, place, 4096), place)
        last = missing[-1][1] - region
        # A part of a region needs the rest of it.
        self.assertNotEqual(0, self.write(at, last, 512))
        self.assertNotEqual(0, self.read(at, last, 4096))
        self.assertEqual(0, self.write(at, last, region))
        self.assertEqual(0, self.read(at, last, region))
        self.node2.run('sync')

    def reboot(self, at: AttachedVolume) -> None:
        """Without a control plane."""
        self.node2.run(['dd', 'if=/dev/null', f'of={at.path}',
                        'conv=fsync,notrunc', 'status=none'])
        self.node2.power_cut()
        self.node2.start()
        self.node2.wait_booted()
        self.node2.volume.cli('activate')
