# SPDX-License-Identifier: Apache-2.0
"""What was never written of a thin volume is not copied."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.relocation import holes
from cinder_dmclone.service import answers
from cinder_dmclone.stack import clones
from cinder_dmclone.units import Bytes
from tests.unit import base
from tests.unit.fake import ports
from tests.unit.fake import storage
from tests.unit.relocation import test_birth

WRITTEN = {1, 2, 5}
DATA = [text if region in WRITTEN else storage.ZEROS
        for region, text in enumerate(base.DATA)]
HOLES = set(range(base.REGIONS)) - WRITTEN


class SparseCase(test_birth.BirthTestCase):
    """All nodes are thin, and the volume has holes."""

    hosts = ('a', 'b', 'c')

    def build(self) -> None:
        super().build()
        for node in self.cloud.nodes.values():
            node.group.pool = storage.POOL
        lv = self.lv_of(self.volume)
        lv.pool = storage.POOL
        lv.blocks = {region: DATA[region] for region in WRITTEN}
        lv.flush()
        self.c, = self.others

    def lv_of(self, volume: VolumeId) -> storage.Volume:
        row = self.cloud.row(volume)
        return self.cloud.nodes[row.node].group.volumes[
            names.data_lv(row.lv)]

    def assert_sparse(self, volume: VolumeId, *more: int) -> None:
        """All is there, and nothing was written that need not be."""
        self.cloud.settle()
        lv = self.lv_of(volume)
        self.assertEqual(DATA, [lv.read(r) for r in range(base.REGIONS)])
        self.assertEqual(WRITTEN | set(more), set(lv.blocks))
        self.assertEqual([], [tag for tag in lv.tags if 'from' in tag])


class HolesTest(SparseCase):

    def test_attach_elsewhere(self) -> None:
        _, path = self.relocated()
        self.assert_data(self.b, path, DATA)
        clone, = (found for name, found in self.b.mapper.mapped.items()
                  if '-clone-' in name)
        self.assertEqual(HOLES, clone.copied)
        self.assert_sparse(self.volume)
        self.assert_data(self.b, path, DATA)

    def test_what_the_copy_knows_outlives_a_power_cut(self) -> None:
        self.relocated()
        self.b.lose_power()
        self.b.start()
        self.assert_sparse(self.volume)

    def test_a_volume_that_was_never_written(self) -> None:
        lv = self.lv_of(self.volume)
        lv.blocks, lv.durable = {}, {}
        _, path = self.relocated()
        self.cloud.settle()
        self.assertEqual({}, self.lv_of(self.volume).blocks)
        self.assert_data(self.b, path, [storage.ZEROS] * base.REGIONS)

    def test_and_one_without_holes(self) -> None:
        lv = self.lv_of(self.volume)
        lv.blocks = dict(enumerate(base.DATA))
        lv.flush()
        _, path = self.relocated()
        self.assertNotIn('take_as_copied',
                         [call.method for call in self.cloud.calls])
        self.assert_data(self.b, path)

    def test_there_and_back(self) -> None:
        for node in (self.b, self.a):
            attachment, path = self.cloud.attach(self.volume, node)
            self.assert_sparse(self.volume)
            self.cloud.detach(self.volume, attachment, node)
            self.cloud.settle()

    def test_it_is_sealed_before(self) -> None:
        """Also where somebody could still have begun to write it."""
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.cloud.forget(self.volume, attachment)
        seen = []

        def fate(message: ports.Message) -> ports.Fate:
            if message.request == 'FindHoles':
                seen.append([name for name in self.a.mapper.mapped
                             if '-front-' in name])
            return ports.Fate.ARRIVES
        self.cloud.fate = fate
        self.relocated()
        self.assertEqual([[]], seen)
        self.assert_sparse(self.volume)

    def test_a_live_migration_copies_everything(self) -> None:
        """The server writes all the while."""
        _, there = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(there)
        asked = []

        def fate(message: ports.Message) -> ports.Fate:
            asked.append(message.request)
            return ports.Fate.ARRIVES
        self.cloud.fate = fate
        self.cloud.migrate(self.volume, self.b)
        self.assertIn('Prepare', asked)
        self.assertNotIn('FindHoles', asked)

    def test_a_lender_that_hydrates_knows_no_holes(self) -> None:
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.attach(self.volume, self.c)
        self.assert_sparse(self.volume, *HOLES)

    def test_a_copy_that_is_not_thin(self) -> None:
        """It would show what others have left."""
        self.b.group.pool = ''
        _, path = self.relocated()
        self.cloud.settle()
        self.assert_data(self.b, path, DATA)
        self.assertEqual(set(range(base.REGIONS)),
                         set(self.lv_of(self.volume).blocks))

    def test_nor_is_one_told_in_a_pool_that_does_not_zero(self) -> None:
        """Whoever has it made to take in copies all the same."""
        self.b.group.zeroes = False
        self.assertEqual([], holes.find(self.b.process.world, self.lv,
                                        mock.sentinel.not_even_asked))

    def test_a_lender_that_is_not_thin(self) -> None:
        self.lv_of(self.volume).pool = ''
        lv = self.lv_of(self.volume)
        lv.blocks = dict(enumerate(base.DATA))
        lv.flush()
        _, path = self.relocated()
        self.cloud.settle()
        self.assert_data(self.b, path)

    def test_an_answer_that_does_not_come(self) -> None:
        """Or that does not make sense, or is not known to that release."""
        self.fates('FindHoles', ports.Fate.LOST)
        self.relocated()
        self.assert_sparse(self.volume, *HOLES)
        for told in (None, [1, 2, 3], [-1, 2]):
            self.build()
            self.patch_answer(told)
            self.relocated()
            self.assert_sparse(self.volume, *HOLES)

    def patch_answer(self, told: list[int] | None) -> None:
        changed = {messages.FindHoles: lambda *rest: told} if told else {}
        rest = {kind: found for kind, found in answers.ANSWERS.items()
                if kind is not messages.FindHoles}
        self.enterContext(
            mock.patch.dict(answers.ANSWERS, rest | changed, clear=True))

    def test_a_kernel_that_refuses(self) -> None:
        error = exceptions.CommandFailed(command='discard', code=95,
                                         stderr='Operation not supported')
        with mock.patch.object(self.b.mapper, 'take_as_copied',
                               side_effect=error):
            self.relocated()
        self.assert_sparse(self.volume, *HOLES)

    def test_one_that_does_not_answer(self) -> None:
        """It may do it later, when a server writes: the copy goes."""
        error = exceptions.CommandTimeout(command='discard', seconds=10)
        with mock.patch.object(self.b.mapper, 'take_as_copied',
                               side_effect=error), (
                self.assertRaises(exceptions.PeerRefused)):
            self.relocated()
        self.assertEqual({}, self.b.group.volumes)
        self.assertIsNone(self.cloud.row(self.volume).offer)


class BirthTest(SparseCase):

    def test_a_clone_here_and_elsewhere(self) -> None:
        for node in (self.a, self.b):
            volume = self.clone(node)
            self.assert_sparse(volume)

    def test_one_that_is_larger(self) -> None:
        volume = self.clone(self.a, size=2)
        self.cloud.settle()
        self.assertEqual(WRITTEN, set(self.lv_of(volume).blocks))

    def test_of_what_is_written(self) -> None:
        """The volume has holes; the copy that its server goes on in has not.
        """
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        volume = self.clone(self.b)
        self.assert_sparse(volume)
        self.assert_sparse(self.volume, *HOLES)

    def test_a_server_where_another_one_is_made_of_its_volume(self) -> None:
        volume = self.clone(self.b)
        self.cloud.attach(self.volume, self.a)
        self.assert_sparse(self.volume)
        self.assert_sparse(volume)


class QuestionTest(SparseCase):

    def refused(self, lv: LvUuid, copy: Location) -> str:
        with self.assertRaises(exceptions.PeerRefused) as caught:
            answers.find_holes(self.a.service, messages.FindHoles(lv, copy))
        return str(caught.exception.msg)

    def test_of_what_is_not_lent_or_not_there(self) -> None:
        copy = Location(self.b.name, self.lv)
        self.assertIn('may be written', self.refused(self.lv, copy))
        self.assertIn('not thin', self.refused(LvUuid('0' * 36), copy))

    def test_of_what_is_lent_and_written(self) -> None:
        """As for a live migration; whoever asks should not have."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.migrate(self.volume, self.b)
        copy = self.cloud.row(self.volume).offer
        assert copy
        self.assertIn('may be written', self.refused(self.lv, copy))


class RegionsTest(base.TestCase):
    """A region of which a part was written is copied."""

    def skipped(self, *edges: int) -> list[tuple[int, int]]:
        """What a clone with regions of 64 bytes is told."""
        host = mock.Mock()
        host.settings.least_region = Bytes(64)
        stack = mock.Mock(lv=LvUuid('x'))
        stack.tags.source.size, stack.tags.source.local = Bytes(512), False
        clones._skip(host, stack, RangesTest.ranges(*edges))
        if not host.dm.take_as_copied.called:
            return []
        name, found = host.dm.take_as_copied.call_args.args
        self.assertEqual('dmclone-clone-x', name)
        return list(found)

    def test_only_what_is_whole(self) -> None:
        for edges, expected in (
                ((), []), ((0, 64), [(0, 64)]), ((0, 63), []), ((1, 65), []),
                ((1, 128), [(64, 128)]), ((0, 100, 128, 300),
                                          [(0, 64), (128, 256)]),
                ((70, 120, 130, 190), [])):
            self.assertEqual(expected, self.skipped(*edges))


class RangesTest(base.TestCase):

    @staticmethod
    def ranges(*edges: int) -> list[tuple[Bytes, Bytes]]:
        return [(Bytes(first), Bytes(end))
                for first, end in zip(edges[::2], edges[1::2])]

    def test_between(self) -> None:
        for data, expected in (
                ((), (0, 90)), ((0, 90), ()), ((0, 10), (10, 90)),
                ((80, 90), (0, 80)), ((10, 20, 30, 40), (
                    0, 10, 20, 30, 40, 90))):
            self.assertEqual(self.ranges(*expected), holes.between(
                self.ranges(*data), Bytes(90)))

    def test_they_cross_the_wire(self) -> None:
        for edges in ((), (0, 5), (3, 5, 9, 10, 1 << 50, 1 << 51)):
            self.assertEqual(self.ranges(*edges), holes.unpack(
                holes.pack(self.ranges(*edges))))

    def test_the_largest_of_many(self) -> None:
        """No message is longer, whatever a volume is like."""
        chunk, edges = 1 << 16, [0]
        for number in range(holes.MOST + 5):
            edges += [edges[-1] + chunk * (1 + number % 3)] * 2
            edges[-1] += chunk
        found = self.ranges(*edges[:-1])
        few = holes.largest(found)
        self.assertLessEqual(len(few), holes.MOST)
        self.assertGreater(len(few), holes.MOST // 2)
        self.assertEqual([one for one in found
                          if one[1] - one[0] >= 2 * chunk], few)
        self.assertEqual(few, holes.largest(few))
