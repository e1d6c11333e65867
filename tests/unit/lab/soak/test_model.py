# SPDX-License-Identifier: Apache-2.0
"""What there is after a step, and what it has to hold."""
from __future__ import annotations

from lab import blocks
from lab.soak.model import Model, Outage, Step
from tests.unit.lab.soak import base


class ModelTest(base.SmallTestCase):
    """A volume, written by one run on node 1."""

    area = 1 << 20

    def setUp(self) -> None:
        super().setUp()
        self.model = Model()
        self.do('create', 'v1', node=1, gib=1)
        self.do('attach', 'v1', node=1)
        self.write('v1')

    def do(self, verb: str, name: str, source: str = '', node: int = 0,
           gib: int = 0, outage: Outage | None = None) -> None:
        self.model.apply(Step(verb, name, source, node, gib, outage))

    def write(self, name: str) -> int:
        """Let a server write and end; the number of the run."""
        epoch = self.model.run(name)
        record = self.model.record(name)
        record.begin(epoch)
        record.take(f'F {epoch} 0 5\nW {epoch} 0 5\nR {epoch}\n')
        return epoch

    def wanted(self, name: str) -> set[blocks.Version]:
        return set(self.model.record(name).wanted)

    def runs(self, name: str) -> set[int]:
        """Whose writes may be there, or must."""
        record = self.model.record(name)
        return {epoch for epoch in range(1, record.epoch + 1)
                if epoch not in record._others}

    def test_a_snapshot_stays_what_it_was(self) -> None:
        self.do('snapshot', 's2', 'v1')
        before = list(self.model.record('s2').wanted)
        self.write('v1')
        self.assertEqual(before, self.model.record('s2').wanted)
        self.assertNotEqual(before, self.model.record('v1').wanted)
        self.assertEqual([{1, 2}, {1}], [self.runs('v1'), self.runs('s2')])

    def test_two_volumes_of_a_snapshot_and_its_own(self) -> None:
        self.do('snapshot', 's2', 'v1')
        self.do('born', 'v3', 's2', gib=1)
        self.do('born', 'v4', 's2', gib=2)
        for name in ('v1', 'v3', 'v4'):
            self.do('attach', name, node=2)
        for name in ('v3', 'v1', 'v4', 'v3'):
            self.write(name)
        self.assertEqual([{1, 3}, {1}, {1, 2, 5}, {1, 4}], [
            self.runs(name) for name in ('v1', 's2', 'v3', 'v4')])
        owners = {self.model.record(name).owner
                  for name in ('v1', 's2', 'v3', 'v4')}
        self.assertEqual(1, len(owners))

    def test_a_clone_of_a_clone(self) -> None:
        self.do('clone', 'v2', 'v1', gib=1)
        self.do('attach', 'v2', node=3)
        self.write('v2')
        self.do('clone', 'v3', 'v2', gib=1)
        self.assertEqual(self.wanted('v2'), self.wanted('v3'))
        self.assertEqual({1, 2}, self.runs('v3'))
        self.assertEqual({1}, self.runs('v1'))
        self.assertTrue(self.model.volumes['v3'].filled)

    def test_a_revert_takes_back_what_was_written(self) -> None:
        self.do('snapshot', 's2', 'v1')
        before = list(self.model.record('v1').wanted)
        self.write('v1')
        self.do('detach', 'v1')
        self.do('revert', 'v1', 's2')
        self.assertEqual(before, self.model.record('v1').wanted)
        self.do('attach', 'v1', node=1)
        self.write('v1')
        self.assertEqual({1, 3}, self.runs('v1'))
        self.assertEqual({1}, self.runs('s2'))

    def test_another_volume_is_another_family(self) -> None:
        self.do('create', 'v2', node=2, gib=1)
        self.assertNotEqual(*(self.model.record(name).owner
                              for name in ('v1', 'v2')))
        self.assertEqual({blocks.NEVER}, self.wanted('v2'))
        self.assertFalse(self.model.volumes['v2'].filled)

    def test_a_record_that_was_forked_before(self) -> None:
        """What was said while a request was under way is not of it."""
        record = self.model.record('v1').fork(writing=True)
        self.write('v1')
        self.model.apply(Step('clone', 'v2', 'v1', gib=1), record)
        self.assertIs(record, self.model.record('v2'))

    def test_servers_end_with_their_node(self) -> None:
        self.do('create', 'v2', node=2, gib=1)
        self.do('attach', 'v2', node=2)
        self.write('v2')
        for kind in ('kill', 'reset'):
            self.do('wait', '', outage=Outage(kind, 1, 0, 1))
            self.assertEqual([kind == 'kill', True], [
                self.model.volumes[name].writing for name in ('v1', 'v2')])

    def test_what_was_looked_at(self) -> None:
        volume = self.model.volumes['v1']
        found = []
        for verb in ('verify', 'detach', 'attach', 'verify', 'migrate',
                     'verify'):
            self.do(verb, 'v1', node=2)
            found.append(volume.looked)
        self.assertEqual([True, True, False, True, False, True], found)
        self.write('v1')
        self.assertFalse(volume.looked)
        self.do('verify', 'v1')
        self.model.doubt()
        self.assertFalse(volume.looked)

    def test_the_latest_snapshot_is_the_last(self) -> None:
        for name in ('s2', 's3'):
            self.do('snapshot', name, 'v1')
        self.assertEqual(['s2', 's3'], [
            one.name for one in self.model.snapshots_of('v1')])
        self.assertEqual('s4', self.model.new_name('s'))
        self.do('unsnapshot', 's3')
        self.assertEqual('s4', self.model.new_name('s'))
