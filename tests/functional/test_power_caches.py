# SPDX-License-Identifier: Apache-2.0
"""What QEMU's cache modes promise to a server whose node loses power."""
from __future__ import annotations

from lab import power
from tests.functional import environment
from tests.functional import test_power

# The last one has to lose something.
_MODES = ('none', 'writeback', 'writethrough', 'directsync', 'unsafe')
# Sectors of which each server knows that they are durable, before the cut.
_ENOUGH = 500


@environment.only_long
class CachesTest(test_power.Rounds):

    def test_every_mode(self) -> None:
        """While all hydrate; of the disk's cache nearly all is lost."""
        servers = list(self.pool.map(
            lambda owner, mode: self.server(owner, self.node1, mode),
            range(1, len(_MODES) + 1), _MODES))
        for server in servers:
            server.attach(self.node2)
            assert server.at
            self.brake(server.at)
            self.assert_hydrating(server.at)
        for server in servers:
            server.start()
        self.wait('what is durable', lambda: all(
            [self.enough(server) for server in servers]))
        print(self.node2.power_cut(test_power.LOSE_MOST), flush=True)
        for server in servers:
            server.die()
        self.forget_requests()
        self.recover([self.node2])
        found = {}
        for mode, server in zip(_MODES, servers):
            server.wait_device()
            found[mode] = server.findings(settled=True)
            print(f'{mode}: {server.ledger.flushes} flushes, '
                  f'{len(found[mode])} findings', flush=True)
        self.assertNotEqual([], found.pop('unsafe'))
        self.assertEqual(dict.fromkeys(found, []), {
            mode: wrong[:20] for mode, wrong in found.items()})
        *kept, lost = servers
        for server in kept:
            self.rest_of(server)
        lost.detach()

    @staticmethod
    def enough(server: power.Server) -> bool:
        """Whether a server has been told that much."""
        server.listen()
        return _ENOUGH < sum(version[0] == server.ledger.epoch
                             for version in server.ledger.wanted)
