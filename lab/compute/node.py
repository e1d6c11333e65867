# SPDX-License-Identifier: Apache-2.0
"""nova-compute in a node, with the libvirtd and the sshd it needs."""
from __future__ import annotations

import pathlib
from collections.abc import Mapping

from lab import install
from lab.compute import config
from lab.daemon import Daemon
from lab.node import Node
from lab.processes import run

_INSTALL = '''
set -e
# libvirt does not start without it, whatever qemu.conf says.
getent passwd libvirt-qemu >/dev/null ||
    useradd --system --user-group --no-create-home libvirt-qemu
install -d /var/lib/nova/lock /etc/dropbear /var/log/libvirt
ln -sfn "$1/instances" /var/lib/nova/instances
ln -sfn "$1/qemu" /var/log/libvirt/qemu
# Not what the machine's own root has there.
rm -rf /root/.ssh /root/.bashrc
install -d -m 700 /root/.ssh
install -m 600 "$2" /root/.ssh/id_ed25519
install -m 600 "$2.pub" /root/.ssh/authorized_keys
'''
_SSH = '''Host *
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
'''
# What libvirt asks QEMU about itself takes half a minute in a node, so that
# it is kept between labs; libvirt knows when it is out of date.
_CAPABILITIES = '/var/cache/libvirt/qemu/capabilities'
# A cold migration makes the server's directory on the other node by ssh.
_DAEMONS = '''
install -d "$4"
cp -n "$3"/*.xml "$4" 2>/dev/null
set -e
pgrep -x libvirtd >/dev/null || libvirtd --daemon --listen
pgrep -x dropbear >/dev/null || dropbear -R -s -E -p "$1:22" 2>>"$2"
'''
# nova-compute writes it once and does not flush it (write_local_node_uuid in
# nova/virt/node.py). It would be empty after a power cut soon after, and
# nova-compute end at once: nodes are to be older than that.
_IDENTITY = '/var/lib/nova/compute_id'
_KEEP = '''
for file in "$2"/*.xml; do
    kept=$1/${file##*/}
    cmp -s "$file" "$kept" ||
        { cp "$file" "$kept.$3" && mv "$kept.$3" "$kept"; }
done
'''


def make_key(path: pathlib.Path) -> None:
    """The key by which the nodes of a lab reach each other."""
    run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', str(path))


class ComputeService(Daemon):
    """nova-compute of one node; its servers outlive it.

    ``key`` is what make_key() made.
    """

    program = 'nova-compute'
    home = '/var/lib/nova'
    up = 'Join ServiceGroup membership'
    failed = ' CRITICAL nova '

    def __init__(self, node: Node, venv: pathlib.Path,
                 key: pathlib.Path) -> None:
        super().__init__(node, venv)
        self.host = node.name
        # What a server has beside its volumes, by the server's uuid.
        self.instances = node.directory / 'instances'
        self._key = key
        self._kept = install.cache_directory() / 'qemu'

    def install(self) -> None:
        node = self._node
        self._kept.mkdir(exist_ok=True)
        self.instances.mkdir()
        (node.directory / 'qemu').mkdir()
        self.configure()
        node.write('/etc/libvirt/libvirtd.conf', config.libvirtd(
            node.data_address, node.directory / 'libvirtd.log'))
        node.write('/etc/libvirt/qemu.conf', config.qemu())
        node.run(['sh', '-c', _INSTALL, 'sh', str(node.directory),
                  str(self._key)])
        node.write('/root/.ssh/config', _SSH)

    def configure(self, more: Mapping[str, Mapping[str, object]] | None = None
                  ) -> None:
        """Write nova.conf with the options of ``more``, by section, added.

        start() makes it so.
        """
        node = self._node
        node.write('/etc/nova/nova.conf', config.node(
            node.name, node.mgmt_address, node.data_address,
            f'{self._venv}/bin/privsep-helper', more or {}))

    def prepare(self) -> None:
        node = self._node
        node.run(['sh', '-c', _DAEMONS, 'sh', node.mgmt_address,
                  str(node.directory / 'dropbear.log'), str(self._kept),
                  _CAPABILITIES])

    def command(self) -> list[str]:
        return [f'{self._venv}/bin/nova-compute', '--config-file',
                '/etc/nova/nova.conf']

    def wait_up(self, timeout: float = 600) -> None:
        super().wait_up(timeout)
        self._node.run(['sync', _IDENTITY])
        self._node.run(['sh', '-c', _KEEP, 'sh', str(self._kept),
                        _CAPABILITIES, self._node.name])

    def console(self, server: str) -> str:
        """What a server printed on its serial port since it is here."""
        log = self.instances / server / 'console.log'
        return log.read_text(errors='replace')

    def press(self, server: str, key: str) -> None:
        """Press a key (a letter) on the keyboard of a server."""
        # Not on the serial port: QEMU looks at its end only now and then,
        # and forgets what was written by someone who left.
        self.virsh('send-key', server, f'KEY_{key.upper()}')

    def virsh(self, *words: str) -> str:
        """What virsh prints; a server's uuid is the name of a domain."""
        return self._node.run(['virsh', '--connect', 'qemu:///system',
                               *words]).stdout
