# SPDX-License-Identifier: Apache-2.0
"""Nodes lose power, with all that their disks had not been told to flush.

A round takes one volume from node 1 to node 2 and another one back, under
load, and cuts the power of one node or both at a random moment: one is the
borrower, the other the lender. DMCLONE_SEED takes the choices of an earlier
run again; DMCLONE_ROUNDS says how many rounds there are. Without --long there
is none, and what other cuts lose is the same each time.
"""
from __future__ import annotations

import concurrent.futures
import copy
import os
import pathlib
import random
import time
from collections.abc import Iterable

from lab import look, power, replay
from lab.disk import Loss
from lab.lab import LabNode
from tests.functional import base
from tests.functional import environment
from tests.functional import faults

# When the power is cut, and the longest time until then, in seconds.
MOMENTS = {'attach': 6.0, 'copying': 8.0, 'swap': 2.0, 'detach': 3.0}
ROUNDS = int(os.environ.get('DMCLONE_ROUNDS') or 10)
_SEED = os.environ.get('DMCLONE_SEED') or (
    str(random.randrange(10**6)) if environment.LONG else '59')
# How often power fails again while a node starts, and when all is on again
# before it has come to rest; until when, in seconds.
_AGAIN = 0.3
_STARTING = 8.0
# With this little of what is in the caches of the groups' disks stays.
LOSE_MOST = 55


class Rounds(base.FunctionalTest):
    """Two volumes that change places between two nodes."""

    volatile = True

    def setUp(self) -> None:
        super().setUp()
        if not self.node1.volatile:
            self.skipTest('the disks of this lab are not volatile')
        self.pool = concurrent.futures.ThreadPoolExecutor(4)
        self.addCleanup(self.pool.shutdown)
        self.lost = Loss()
        self.cuts = 0
        self.servers: list[power.Server] = []

    def server(self, owner: int, node: LabNode,
               mode: str = '') -> power.Server:
        """A server's volume, filled and at rest on a node.

        :param mode: QEMU's cache mode, if there is a QEMU
        """
        words = self.lab, self.volume(node), owner, node, self.gib
        server = (power.CachedServer(*words, mode) if mode
                  else power.Server(*words))
        # A device that is open is not detached.
        self.addCleanup(server.die)
        server.attach(node)
        server.fill()
        server.start()
        server.stop()
        server.detach()
        return server

    def rounds(self, count: int) -> None:
        """So many rounds; prints what came of them."""
        nodes = self.node1, self.node2
        self.servers = list(self.pool.map(self.server, (1, 2), nodes))
        for number in range(count):
            self.round(number, random.Random(f'{_SEED} {number}'))
        print(f'seed {_SEED}: {count} rounds, {self.cuts} power cuts; '
              f'of {self.lost.cached} cached writes {self.lost.lost} lost, '
              f'{self.lost.torn} torn; '
              f'{sum(s.ledger.flushes for s in self.servers)} flushes',
              flush=True)

    def round(self, number: int, dice: random.Random) -> None:
        """Move both volumes, cut the power, look, and let it all end."""
        nodes = [[self.node1, self.node2], [self.node2], [self.node1]]
        victims = nodes[number % 3]
        moment = dice.choice(list(MOMENTS))
        print(f'seed {_SEED}, round {number}: {moment}', flush=True)
        pending = self.approach(moment)
        self.strike(f'{number}', victims, dice, MOMENTS[moment])
        for future in pending:
            future.result()
        self.look(victims)
        while dice.random() < _AGAIN:
            number += ROUNDS
            victims = dice.choice(nodes)
            self.strike(f'{number}', victims, dice, MOMENTS['copying'])
            self.look(victims)
        self.rest()

    def strike(self, name: str, victims: list[LabNode],
               dice: random.Random, limit: float) -> None:
        """Cut the power within a time, and switch it on again."""
        pause = dice.random() * limit
        print(f'  {name}: {" and ".join(node.name for node in victims)}, '
              f'after {pause:.1f} s', flush=True)
        time.sleep(pause)
        self.cut(name, victims)
        for server in self.servers:
            if server.node in victims:
                server.die()
        if dice.random() < _AGAIN:
            self.fail_again(name, victims, dice.random() * _STARTING)
        self.recover(victims)

    def approach(self, moment: str) -> list[concurrent.futures.Future[None]]:
        """Go up to a moment; what goes on meanwhile."""
        moving = [self.pool.submit(self.move, server)
                  for server in self.servers]
        if moment == 'attach':
            return moving
        for future in moving:
            future.result()
        for server in self.servers:
            server.start()
        first = self.servers[0]
        if moment == 'swap':
            self.wait('the end of the copying', lambda: self.copied(first))
        elif moment == 'detach':
            for server in self.servers:
                self.wait_complete(server.volume)
                server.stop()
            return [self.pool.submit(server.detach)
                    for server in self.servers]
        return []

    def move(self, server: power.Server) -> None:
        """Attach where it is not."""
        other, = (node for node in self.lab.nodes
                  if node is not server.node)
        server.attach(other)

    def copied(self, server: power.Server) -> bool:
        assert server.at
        server.listen()
        found = self.hydrated(server.at)
        return not found or found[0] == found[1]

    def cut(self, name: str, victims: list[LabNode]) -> None:
        """Cut the power; the name and the seed decide what is lost."""
        for node in victims:
            loss = node.power_cut(f'{_SEED} {name} {node.name}')
            print(f'  {node.name}: {loss}', flush=True)
            self.lost += loss
            self.cuts += 1
        self.forget_requests()

    def fail_again(self, name: str, victims: list[LabNode],
                   pause: float) -> None:
        """Cut the power while nodes start."""
        print(f'  again, {pause:.1f} s after the boot', flush=True)
        self.boot(victims)
        for node in victims:
            node.volume.start()
        time.sleep(pause)
        self.cut(f'{name} again', victims)

    @staticmethod
    def boot(victims: Iterable[LabNode]) -> None:
        for node in victims:
            node.start()
        for node in victims:
            node.wait_booted()
            if power.repair(node):
                print(f'  {node.name}: LVM had lost its volume group',
                      flush=True)

    def recover(self, victims: list[LabNode]) -> None:
        """Switch nodes on, with their services."""
        self.boot(victims)
        self.start_services(*victims)

    def look(self, victims: list[LabNode]) -> None:
        """Compare, also if it still copies; then write on."""
        for server in self.servers:
            if not server.at:
                continue
            server.wait_device()
            if server.writes():
                server.stop()
            self.assertEqual([], server.findings(
                settled=server.node in victims)[:20])
            server.start()

    def rest(self) -> None:
        """Everything comes to an end, and is there."""
        for server in self.servers:
            if not server.at:
                server.attach(server.node)
                self.assertEqual([], server.findings(settled=False)[:20])
        for server in self.servers:
            self.rest_of(server)
        self.assertEqual([], self.checker.check())

    def rest_of(self, server: power.Server) -> None:
        if server.writes():
            server.stop()
        self.wait_complete(server.volume)
        self.assertEqual([], server.findings(settled=False)[:20])
        server.detach()

    def cut_at_commit(self) -> tuple[power.Server, list[str]]:
        """Cut both nodes when a volume's row has just named its new node.

        Returns its server, which has it again if all is well, and what is
        missing on the nodes if it is not.
        """
        server = self.server(1, self.node1)
        self.freeze(self.node1, 'rows.commit:after')
        request = self.pool.submit(server.request, self.node2)
        self.wait_frozen(self.node1)
        row = self.row(server.volume)
        for node in self.lab.nodes:
            node.power_cut(LOSE_MOST)
        self.forget_requests()
        self.boot(self.lab.nodes)
        missing = self.missing(server.volume, row.lv)
        if not missing:
            self.start_services(*self.lab.nodes)
            request.result()
            server.attach(self.node2)
        return server, missing

    def missing(self, lender: str, borrower: str) -> list[str]:
        """What a row relies on, of LVs and tags, and is not on the nodes.

        :param lender: uuid of the LV on node 1, the volume's id as well
        :param borrower: uuid of the LV on node 2
        """
        return [f'{name} {tag} on {node.name}' for node, name, tag in (
            (self.node1, f'volume-{lender}', 'dmclone.1.lent/'),
            (self.node2, f'volume-{borrower}', 'dmclone.1.from/'),
            (self.node2, f'dmclone-meta-{borrower}',
             f'dmclone.1.meta/{lender}/{borrower}/1/'))
            if not any(found.startswith(tag) for found
                       in look.volumes(node).get(name, ()))]


class PowerTest(Rounds):

    def test_what_was_not_flushed_is_lost(self) -> None:
        """The cache is one: it keeps nothing but what was flushed."""
        at = self.attach(self.volume(self.node1), self.node1)
        write = (f'yes {{}} | dd of={at.path} bs=64k count=16 iflag=fullblock '
                 'oflag=direct status=none')
        self.node1.run(f'{write.format("flushed")} conv=fsync; '
                       f'{write.format("at_once")}')
        loss = self.node1.power_cut(LOSE_MOST)
        self.assertLessEqual(16, loss.cached)
        self.recover([self.node1])
        power.wait_device(at)
        found = self.node1.run(f'dd if={at.path} bs=64k count=16 iflag=direct '
                               'status=none').stdout
        sectors = {found[at:at + 512] for at in range(0, len(found), 512)}
        self.assertIn('flushed\n' * 64, sectors)
        self.assertLessEqual(sectors, {'flushed\n' * 64, 'at_once\n' * 64})

    def test_what_a_commit_relies_on_is_flushed(self) -> None:
        server, missing = self.cut_at_commit()
        self.assertEqual([], missing)
        self.assertEqual([], server.findings(settled=True)[:20])
        self.rest_of(server)

    @environment.only_long
    def test_power_cuts(self) -> None:
        self.rounds(ROUNDS)

    def test_every_flush(self) -> None:
        """At each flush what the borrower has and lacks is right.

        The log is replayed once as it is, and once, to see whether that is
        found, without its largest write.
        """
        log = pathlib.Path(self.lab.directory, 'log')
        log.unlink(missing_ok=True)
        os.link(self.node2.log_of_writes, log)
        self.addCleanup(log.unlink)
        server = self.server(random.randrange(10**6), self.node1)
        volume, story = self.watched(server, log)
        self.servers = [server]
        self.look([self.node2])
        self.rest()
        with log.open('rb') as file:
            faulty = copy.deepcopy(volume)
            volume.replay(file.fileno(), story)
            faulty.replay(file.fileno(), story,
                          faulty.largest(file.fileno(), story.since))
        print(f'{volume.flushes} flushes, {volume.partial} of them while '
              'some regions were there', flush=True)
        self.assertEqual([], volume.findings[:20])
        self.assertLess(0, volume.partial)
        assert volume.bitmap
        self.assertEqual(volume.bitmap.regions, volume.bitmap.hydrated)
        self.assertNotEqual([], faulty.findings)

    def watched(self, server: power.Server,
                log: pathlib.Path) -> tuple[replay.Volume, replay.Story]:
        """Move a server to node 2, let it write till all is there, and cut.

        Returns its volume as it was before, and what happened.
        """
        self.freeze(self.node2, faults.COPYING)
        server.attach(self.node2)
        self.wait_frozen(self.node2)
        lv = self.row(server.volume).lv
        lender = f'/dev/cinder-volumes/volume-{server.volume}'
        server.start()
        volume = replay.Volume(
            server.ledger, server.copy(self.node1, lender),
            self.place(f'volume-{lv}'), self.place(f'dmclone-meta-{lv}'))
        server.ledger = witness = replay.Witness(server.ledger, log)
        since = log.stat().st_size
        self.wait_flushes(server)
        self.thaw(self.node2)

        def ended() -> bool:
            server.listen()
            return ';' not in self.row(server.volume).provider_id
        self.wait('the end of the hydration', ended)
        local = log.stat().st_size
        self.wait_flushes(server)
        self.cut('every flush', [self.node2])
        server.die()
        story = replay.Story(since, local, list(witness.said))
        self.recover([self.node2])
        return volume, story

    def wait_flushes(self, server: power.Server) -> None:
        """Wait until a server has flushed often."""
        wanted = server.ledger.flushes + 20

        def often() -> bool:
            server.listen()
            return server.ledger.flushes > wanted
        self.wait('flushes', often)

    def place(self, lv: str) -> replay.Place:
        """Where an LV of node 2 is on its disk."""
        return replay.Place.parse(self.node2.run(
            f'dmsetup table "$(lvs --devices {self.node2.disk} --noheadings '
            f'-o lv_dm_path cinder-volumes/{lv} | tr -d " ")"').stdout)


@environment.only_long
class ForgetfulTest(Rounds):
    """With a driver that does not flush it is not there."""

    driver = 'dmclone_faulty.ForgetfulDriver'

    def _finish(self) -> None:
        """Nothing: its lab is of no more use."""

    def test_what_a_commit_relies_on_is_lost(self) -> None:
        _, missing = self.cut_at_commit()
        self.assertNotEqual([], missing)
        print(f'missing: {missing}', flush=True)
