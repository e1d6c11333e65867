# SPDX-License-Identifier: Apache-2.0
"""Live migration of a server, beside that of one on a disk of Nova's own.

Nova copies such a disk before the server runs elsewhere (block migration).
QEMU without KVM lets no server run while its memory is copied (see
Server.suspend), so that nothing is written meanwhile, which would have to be
copied once more: it is the best case of block migration.
"""
from __future__ import annotations

import pathlib
import random
import tempfile
import time
from collections.abc import Callable

from lab import blocks, figures, guest, install
from lab.compute.server import LIMIT, Server
from lab.figures import Figure
from lab.lab import Lab, LabNode
from lab.node import Size
from lab.peers import alternating
from lab.processes import wait_for

OURS, NOVA = 'volume', "Nova's disk"
# What its lab has that others do not: a node has an image as Nova keeps it,
# and as cinder-volume reads it, beside the disk of a server.
LAB = {'nova': True, 'size': Size(memory_mib=2048, state_mib=6144)}
RUNS, FREE, MOVED = 'until it runs there', 'until the old node is free', 'data'
_RECEIVED = '/sys/class/net/vec0/statistics/rx_bytes'
_GIB = 1 << 30
_MIB = float(1 << 20)


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures, of disks of a GiB that are full."""
    image = _image(lab)
    root = {'boot_index': 0, 'uuid': image, 'source_type': 'image',
            'destination_type': 'volume', 'volume_size': 1}
    servers = {OURS: _booted(lab, lab.ask_server_of('', root, host='node1')),
               NOVA: _booted(lab, lab.ask_server_of(image, host='node1'))}
    samples: dict[str, dict[str, list[float]]] = {
        what: {name: [] for name in servers} for what in (RUNS, FREE, MOVED)}
    for number in range(times):
        for name in alternating(list(servers), number):
            say(f'{name}, {number + 1} of {times}')
            for what, value in _migrated(lab, servers[name]).items():
                samples[what][name].append(value)
    for server in servers.values():
        lab.delete_server(server.id)
    lab.delete_volume(servers[OURS].volume)
    lab.openstack('image', 'delete', image)
    return [figures.ratio(f'live migration, {what}', OURS, NOVA,
                          samples[what], 'MiB' if what == MOVED else 's')
            for what in (RUNS, FREE, MOVED)]


def _image(lab: Lab) -> str:
    """An image with the guest, and blocks that it did not write; its id."""
    install.ensure_packages(['qemu-utils'])
    system = guest.build(install.cache_directory()).read_bytes()
    with tempfile.TemporaryDirectory(dir=lab.directory) as folder:
        area, disk = (pathlib.Path(folder, name) for name in ('area', 'disk'))
        with area.open('wb') as file:
            file.truncate(_GIB - len(system))
        blocks.fill(str(area), random.randrange(1, 1 << 32))
        disk.write_bytes(system + area.read_bytes())
        return str(lab.openstack('image', 'create', '--disk-format', 'raw',
                                 '--file', str(disk), 'full')['id'])


def _booted(lab: Lab, server: str) -> Server:
    """A server whose guest writes."""
    lab.wait_server(server, 'ACTIVE')
    volumes = lab.server(server)['os-extended-volumes:volumes_attached']
    found = Server(lab, server, volumes[0]['id'] if volumes else '')
    found.wait_more()
    return found


def _migrated(lab: Lab, server: Server) -> dict[str, float]:
    """Move a server to the other node and back to rest; what it took."""
    there = lab.nodes[2 - server.node.number]
    before = _received(there)
    server.suspend()
    begin = time.monotonic()
    lab.live_migrate(server.id, there.number)
    runs = free = time.monotonic() - begin
    server.resume()
    if server.volume:
        wait_for(f'all data of {server.volume}',
                 lambda: _rests(server, there), LIMIT, 0.2)
        free = time.monotonic() - begin
    moved = _received(there) - before
    server.wait_more()
    return {RUNS: runs, FREE: free, MOVED: moved / _MIB}


def _rests(server: Server, node: LabNode) -> bool:
    """Whether a server's volume is on a node, and needs no other."""
    _, name, relocation = server.row(server.volume)
    return name == node.name and ';' not in relocation


def _received(node: LabNode) -> int:
    """Bytes that came to a node over the storage network."""
    return int(node.read(_RECEIVED))
