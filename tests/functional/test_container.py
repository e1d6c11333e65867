# SPDX-License-Identifier: Apache-2.0
"""cinder-volume with what Kolla's container gives it, and no more."""
from __future__ import annotations

from lab import container
from lab.lab import LabNode
from tests.functional import base
from tests.functional import environment

BLOCKS = base.GIB // 4096

_SEEN = '''
[ "$(stat -c %a /etc/iscsi)" = 2775 ]
for path in /etc/iscsi/nodes/*/*/*; do
    stat -c %U "$path" || [ ! -e "$path" ]
done
nsenter -t "$1" -m sh -ec '
    [ -d /sys/kernel/config/target ]
    [ "$(stat -f -c %T /etc/lvm)" = tmpfs ]'
'''


class ContainerTest(base.FunctionalTest):
    """Both nodes: one lends, the other borrows."""

    def enclose(self, node: LabNode) -> None:
        """Have cinder-volume in a container until the test ends."""
        node.volume.stop()
        node.volume.contained = True
        self.addCleanup(self.let_out, node)

    def let_out(self, node: LabNode) -> None:
        """Undo ``enclose``; the service is not started."""
        node.volume.contained = False
        if node.running():
            node.volume.stop()
            node.run(container.LEFT)

    def owners(self, node: LabNode) -> list[str]:
        """Whose the node records are; it is as in a container."""
        pid, *_ = node.volume.pids()
        return node.run(['sh', '-ec', _SEEN, 'sh', str(pid)]
                        ).stdout.split()

    @environment.only_long
    def test_a_volume_moves_there_and_back_with_a_reboot_between(
            self) -> None:
        nodes = self.node1, self.node2
        for node in nodes:
            self.enclose(node)
        self.start_services(*nodes)
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2, crawl=True)
        self.assertEqual(['root'], self.owners(self.node2))
        image.write(at, 9, 20, BLOCKS // 21)
        self.node2.reboot()
        # Which gives the record away, and all else that is left there.
        self.start_services(self.node2)
        self.assertEqual(['cinder'], self.owners(self.node2))
        self.wait(f'{at.path}', lambda: self.node2.run(
            ['test', '-e', at.path], check=False).code == 0)
        image.write(at, 13, 20, BLOCKS // 22)
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.wait('the end of the record',
                  lambda: not self.owners(self.node2))
        self.detach(at)
        self.assert_holds(image, self.attach(volume, self.node1))
