# SPDX-License-Identifier: Apache-2.0
"""The lab as a whole: see class Lab."""
from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lab import (config, database, guest, install, kernel, logs, programs,
                 remains, virtualenv)
from lab.compute import config as nova_config
from lab.compute import database as nova_database
from lab.compute.cloud import Cloud
from lab.compute.node import ComputeService
from lab.compute.servers import MICROVERSION, Servers
from lab.daemon import Daemon
from lab.errors import CommandError, LabError
from lab.images import Glance
from lab.machine import image
from lab.machine.node import MEMORY_MIB, Machine
from lab.machine.volume import MachineVolumeService
from lab.network import Network
from lab.node import Node, Size
from lab.processes import run, unwatch, wait_for, watch
from lab.rest import KEYSTONE
from lab.services import (PASSWORD, CinderAPI, CinderScheduler, Keystone,
                          MariaDB, RabbitMQ, Service, environment)
from lab.volume import DRIVER, VolumeService

# The driver with fault points: lab/faulty.py under a name of its own, because
# the nodes do not have the package lab.
FAULTY = 'dmclone_faulty.py'
FAULTY_DRIVER = 'dmclone_faulty.FaultyDriver'
STILL_DRIVER = 'dmclone_faulty.StillDriver'
# nova-compute, libvirtd and some small servers beside cinder-volume.
_NOVA_SIZE = Size(memory_mib=1536)
_JSON_VERBS = {'list', 'show', 'create'}


def default_name() -> str:
    """A name that two checkouts do not share."""
    return 'lab-' + install.digest(str(virtualenv.CHECKOUT).encode())[:6]


class LabNode(Node):
    """A node with cinder-volume on it, and nova-compute if there is Nova."""

    volume: VolumeService
    compute: ComputeService


class LabMachine(Machine, LabNode):
    """The same on a stock Debian."""

    volume: MachineVolumeService


class Lab(Servers):
    """A control plane and ``nodes`` kernels in a network of their own.

    The last nodes may be ``machines``: see lab.machine.

    Used as a context manager, or start() and stop(); with ``keep`` it
    outlives this process, and Lab.attach(name) finds it again.  ``backend``
    and ``default`` are options added to the backend's section and to
    [DEFAULT] of each node's cinder.conf.  With ``nova`` there are servers
    too: see lab.compute.  On the nodes ``native`` cinder-volume runs on
    threads, not eventlet.  ``beside`` are further backends of each node.
    """

    def __init__(self, name: str | None = None, nodes: int = 2,
                 driver: str | None = None,
                 backend: Mapping[str, object] | None = None,
                 default: Mapping[str, object] | None = None,
                 size: Size | None = None, keep: bool = False,
                 nova: bool = False, native: Collection[int] = (),
                 machines: int = 0,
                 beside: Mapping[str, Mapping[str, object]] | None = None
                 ) -> None:
        self.name = name or default_name()
        if not re.fullmatch('[a-z0-9][a-z0-9-]{0,19}', self.name):
            raise LabError(f'{self.name!r} is no name for a lab: up to 20 '
                           'of a-z, 0-9 and "-"')
        self.keep = keep
        self.directory = remains.ROOT / self.name
        self.venv = self.directory / 'venv'
        self.network = Network(self.name)
        size = size or (_NOVA_SIZE if nova else Size())
        self._settings: dict[str, Any] = {
            'nodes': nodes, 'machines': machines, 'nova': nova,
            'native': list(native),
            'driver': driver or DRIVER, 'beside': dict(beside or {}),
            'backend': dict(backend or {}), 'default': dict(default or {}),
            'size': vars(size), 'kernel': None, 'keep': keep}
        self._claim: remains.Claim | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._assemble()

    def _assemble(self) -> None:
        """Make the objects of everything; starts nothing."""
        super().__init__(self.network)
        at = self.directory
        self.mariadb = MariaDB(at, self.network)
        self.rabbitmq = RabbitMQ(at, self.network)
        self.keystone = Keystone(at, self.network, self.venv)
        self.cinder_api = CinderAPI(at, self.network, self.venv)
        self.cinder_scheduler = CinderScheduler(at, self.network, self.venv)
        self.glance = Glance(at, self.network, self.venv)
        self.services: list[Service] = [
            self.mariadb, self.rabbitmq, self.keystone, self.glance,
            self.cinder_api, self.cinder_scheduler]
        settings = self._settings
        self.cloud: Cloud | None = None
        more = None
        if settings['nova']:
            self.cloud = Cloud(at, self.network, self.venv)
            self.services += self.cloud.services
            more = nova_config.cinder()
        size = Size(**settings['size'])
        first = settings['nodes'] - settings['machines'] + 1
        self.nodes = []
        for number in range(1, settings['nodes'] + 1):
            node = (self._machine(number, size) if number >= first
                    else self._node(number, size, more))
            if self.cloud:
                node.compute = self.cloud.compute(node)
            self.nodes.append(node)

    def _node(self, number: int, size: Size,
              more: config.Sections | None) -> LabNode:
        settings = self._settings
        node = LabNode(number, self.directory / f'node{number}',
                       self.network, self._shares, size, settings['kernel'])
        node.volume = VolumeService(
            node, self.venv, settings['driver'], settings['backend'],
            settings['default'], more, number in settings['native'],
            settings['beside'])
        return node

    def _machine(self, number: int, size: Size) -> LabMachine:
        settings = self._settings
        node = LabMachine(
            number, self.directory / f'node{number}', self.network,
            self._shares, dataclasses.replace(size, memory_mib=MEMORY_MIB))
        node.volume = MachineVolumeService(
            node, self.directory, settings['driver'], settings['backend'],
            settings['default'])
        return node

    @property
    def _shares(self) -> list[pathlib.Path]:
        return [self.directory, install.cache_directory()]

    @classmethod
    def attach(cls, name: str | None = None) -> Lab:
        """The lab of that name that is up already."""
        install.check_machine()
        lab = cls(name, keep=True)
        try:
            text = (lab.directory / remains.SETTINGS).read_text()
        except FileNotFoundError:
            raise LabError(f'there is no lab {lab.name}') from None
        lab._settings |= json.loads(text)
        lab._assemble()
        lab.forgive()
        watch(lab.check)
        return lab

    @classmethod
    def remove(cls, name: str | None = None) -> None:
        """Remove a lab by what is on disk, whoever started it."""
        install.check_machine()
        lab = cls(name)
        remains.remove(lab.name)
        remains.forget(lab.name)

    @property
    def kernel_name(self) -> str | None:
        """What its nodes run on, once it has been started."""
        name: str | None = self._settings['kernel']
        return name

    # Start and stop

    def start(self) -> None:
        """Start everything and wait until every backend is up.

        Remains of earlier labs, of this name or left by processes that were
        killed, are removed first.  If it fails, the logs are kept, their
        place is printed, and nothing else stays.
        """
        layers = [install.ensure()]
        if self.cloud:
            layers.insert(0, install.ensure_nova(layers[0],
                                                 guest.GUEST_PACKAGES))
        if self._settings['machines']:
            image.ensure()
        # Whoever attaches to it starts its nodes as they were.
        self._settings['kernel'] = kernel.choose().name
        self._claim = remains.Claim(self.name)
        remains.sweep()
        try:
            self._remove()
            self.directory.mkdir(parents=True)
            (self.directory / remains.SETTINGS).write_text(
                json.dumps(self._settings))
            self.network.create(self._settings['nodes'])
            watch(self.check)
            self._start_all(layers)
        except BaseException as error:
            if isinstance(error, Exception):
                logs.keep(self.directory)
            try:
                self.stop()
            except LabError as exc:
                print(f'lab: {exc}', file=sys.stderr)
            raise

    def _start_all(self, layers: list[pathlib.Path]) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(16)
        submit = self._pool.submit
        booted = [submit(self._boot, node) for node in self.nodes]
        rabbit = submit(self.rabbitmq.start)
        identity = submit(self._start_identity, layers)
        checkout = submit(self._install, layers)
        for step in (identity, checkout, rabbit):
            step.result()
        self._configure()
        # The client asks Glance before it makes a volume, of an image or not.
        steps = [submit(self.cinder_scheduler.start),
                 submit(self.glance.start), submit(self._start_api)]
        steps += [submit(self._start_node, node, boot)
                  for node, boot in zip(self.nodes, booted)]
        if self.cloud:
            steps += [submit(service.start) for service
                      in self.cloud.services]
        for step in concurrent.futures.as_completed(steps):
            step.result()
        wait_for('the scheduler to know every backend', self._all_known)
        if self.cloud:
            self.create_flavor()
            wait_for('Nova to know every node', self._all_hosts)

    def _configure(self) -> None:
        more = nova_config.cinder() if self.cloud else None
        (self.directory / 'cinder.conf').write_text(
            config.controller(self.venv, self.directory / 'cinder', more))
        (self.directory / 'cinder' / 'lock').mkdir(parents=True)
        if self.cloud:
            self.cloud.prepare()

    def _boot(self, node: LabNode) -> None:
        node.start()
        node.wait_booted()

    def _start_identity(self, layers: list[pathlib.Path]) -> None:
        base = layers[-1]
        source = (nova_database.template(base, layers[0]) if self.cloud
                  else database.template(base))
        database.copy(source, self.mariadb, self.keystone)
        self.mariadb.start()
        # The lab's own virtualenv is made at the same time.
        Keystone(self.directory, self.network, base).start()

    def _install(self, layers: list[pathlib.Path]) -> None:
        virtualenv.create(layers, self.venv)
        self._install_checkout(layers[-1])

    def _install_checkout(self, base: pathlib.Path) -> None:
        virtualenv.install_checkout(base, self.venv, self.directory)
        faulty = pathlib.Path(__file__).with_name('faulty.py')
        for folder in virtualenv.site_packages(self.venv), self.directory:
            shutil.copy(faulty, folder / FAULTY)
        if self._settings['machines']:
            virtualenv.build_wheel(base, self.directory)
        programs.install(self.directory)

    def _start_api(self) -> None:
        self.cinder_api.start()
        self.create_type(config.BACKEND)

    def _start_node(self, node: LabNode,
                    booted: concurrent.futures.Future[None]) -> None:
        booted.result()
        services: list[Daemon] = [node.volume]
        if self.cloud:
            services.append(node.compute)
        for service in services:
            service.install()
            service.start()
        for service in services:
            service.wait_up()

    def _all_known(self) -> bool:
        found = self.cinder('GET', '/scheduler-stats/get_pools')
        return len(found['pools']) == len(self.nodes) * (
            1 + len(self._settings['beside']))

    def _all_hosts(self) -> bool:
        found = self.nova('GET', '/os-hypervisors')
        return len(found['hypervisors']) == len(self.nodes)

    def reinstall(self) -> None:
        """Install the checkout again and restart every cinder-volume."""
        self._install_checkout(install.base_virtualenv())
        for node in self.nodes:
            if node.volume.running():
                node.volume.stop()
            node.volume.install()
            node.volume.start()
        for node in self.nodes:
            node.volume.wait_up()

    def stop(self) -> None:
        """End every process and remove every trace but the cache."""
        self._remove()
        if self._claim:
            self._claim.release()
            self._claim = None

    def check(self) -> None:
        """Raise LabError if a node has died or run out of memory.

        Whoever waits in this process does so, from start() or attach() on.
        """
        for node in self.nodes:
            node.check()

    def forgive(self) -> None:
        """Let check() tell only of what happens from now on."""
        for node in self.nodes:
            node.forgive()

    def _remove(self) -> None:
        unwatch(self.check)
        if self._pool:
            end = threading.Thread(target=self._pool.shutdown,
                                   kwargs={'cancel_futures': True})
            end.start()
            while end.is_alive():
                # Steps that are still starting something fail now.
                self.network.destroy()
                database.abandon()
                end.join(0.5)
            self._pool = None
        remains.remove(self.name)

    def __enter__(self) -> Lab:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.keep:
            self.stop()

    # Use

    def openstack(self, *argv: str, check: bool = True,
                  user: str = 'admin', timeout: float = 600) -> Any:
        """Run the real client; decoded JSON of list, show and create.

        Other commands give their text.  Raises CommandError.
        """
        words = list(argv)
        parse = bool(_JSON_VERBS & set(words[:4]))
        if parse:
            words += ['-f', 'json']
        result = run(
            *self.network.argv(f'{self.venv}/bin/openstack', *words),
            env=environment(**self._credentials(user)), check=False,
            timeout=timeout)
        if check and result.returncode:
            raise CommandError(f'openstack {" ".join(argv)}',
                               result.returncode,
                               result.stderr or result.stdout)
        if parse and not result.returncode:
            return json.loads(result.stdout)
        return result.stdout

    def _credentials(self, user: str) -> dict[str, str]:
        nova = {'OS_COMPUTE_API_VERSION': MICROVERSION} if self.cloud else {}
        return {'OS_AUTH_URL': KEYSTONE, 'OS_USERNAME': user,
                'OS_PASSWORD': PASSWORD, 'OS_PROJECT_NAME': user,
                'OS_USER_DOMAIN_ID': 'default',
                'OS_PROJECT_DOMAIN_ID': 'default',
                'OS_IDENTITY_API_VERSION': '3',
                'OS_VOLUME_API_VERSION': '3.71', **nova}

    def shell(self) -> str:
        """Shell text that makes ``openstack`` talk to this lab."""
        lines = [f'export {key}={value}'
                 for key, value in self._credentials('admin').items()]
        openstack = ' '.join(
            self.network.argv(f'{self.venv}/bin/openstack'))
        return '\n'.join([*lines, f'openstack() {{ {openstack} "$@"; }}'])

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of one statement in Cinder's database, as its root."""
        return database.query(self.venv, self.mariadb.socket, statement)

    def create_root(self, node: int = 1) -> str:
        """A bootable volume on a node: lab.guest, then zeros; its id."""
        image = guest.build(install.cache_directory()).read_bytes()
        volume = self.create_with(node, lambda device: (
            f'blkdiscard -z {device} && '
            f'dd bs=1M conv=fsync iflag=fullblock of={device}'), image)
        self.set_bootable(volume)
        return volume

    def create_filled(self, node: int = 1) -> str:
        """A volume on a node full of blocks that no guest wrote; its id.

        Unlike zeros they are missed.
        """
        return self.create_with(node, lambda device: programs.command(
            self.directory, 'blocks', 'fill', device,
            random.randrange(1, 1 << 32)))

    def create_with(self, node: int, command: Callable[[str], str | list[str]],
                    input: bytes | None = None) -> str:
        """A volume with what a command writes to its device; its id.

        A guest would take what a deleted volume has left for its own.
        """
        volume = self.create_volume(1, node)
        at = self.attach_volume(volume, node)
        at.node.run(command(at.path), input=input, timeout=300)
        self.detach_volume(at.id)
        return volume

    def console(self, server: str) -> str:
        """What a server printed on its serial port on its present node."""
        return self.nodes[self.node_of(server) - 1].compute.console(server)

    def status(self) -> dict[str, Any]:
        """What runs, by name."""
        return {
            'name': self.name, 'directory': str(self.directory),
            'namespace': self.network.namespace,
            'services': {service.name: service.running()
                         for service in self.services},
            'nodes': {node.name: node.running() for node in self.nodes}}
