# SPDX-License-Identifier: Apache-2.0
"""Nova's databases, beside those of Keystone and Cinder."""
from __future__ import annotations

import pathlib

from lab import database, install
from lab.compute import config
from lab.config import TRANSPORT
from lab.network import CONTROLLER
from lab.processes import run
from lab.rest import Client
from lab.services import (NOVA_PORT, PLACEMENT_PORT, Keystone, MariaDB,
                          environment)

_HERE = pathlib.Path(__file__).parent
_DATABASES = ('nova_api', 'nova_cell0', 'nova', 'placement')
_ENDPOINTS = (
    ('nova', 'compute', f'http://{CONTROLLER}:{NOVA_PORT}/v2.1'),
    ('placement', 'placement', f'http://{CONTROLLER}:{PLACEMENT_PORT}'),
)
_SYNC = (
    ('placement-manage', 'placement.conf', 'db', 'sync'),
    ('nova-manage', 'nova.conf', 'api_db', 'sync'),
    ('nova-manage', 'nova.conf', 'cell_v2', 'map_cell0',
     '--database_connection', config.database('nova_cell0')),
    ('nova-manage', 'nova.conf', 'db', 'sync'),
    ('nova-manage', 'nova.conf', 'cell_v2', 'create_cell', '--name', 'cell1',
     '--database_connection', config.database('nova'),
     '--transport-url', TRANSPORT),
)


def _build(path: pathlib.Path, source: pathlib.Path,
           venv: pathlib.Path) -> None:
    """Make the databases in ``path`` from those in ``source``."""
    with database.workshop(path) as network:
        mariadb = MariaDB(path, network)
        keystone = Keystone(path, network, venv)
        database.copy(source, mariadb, keystone)
        mariadb.start()
        keystone.start(wait=False)
        for name in _DATABASES:
            database.query(venv, mariadb.socket, f'CREATE DATABASE {name}',
                           '')
        (path / 'nova.conf').write_text(config.controller(path / 'nova'))
        (path / 'placement.conf').write_text(config.placement())
        for program, file, *words in _SYNC:
            run(*network.argv(f'{venv}/bin/{program}', '--config-file',
                              str(path / file), *words), env=environment())
        keystone.wait_ready()
        client = Client(network)
        for user in ('nova', 'placement'):
            database.add_user(client, 'service', user, 'admin', 'service')
        for endpoint in _ENDPOINTS:
            database.add_endpoint(client, *endpoint)
        keystone.stop()
        mariadb.stop()


def template(base: pathlib.Path, venv: pathlib.Path) -> pathlib.Path:
    """The cached databases of a lab with Nova.

    ``base`` and ``venv`` are what install.ensure() and ensure_nova() gave.
    """
    source = database.template(base)
    name = install.digest(
        source.name.encode(), venv.name.encode(),
        *((_HERE / file).read_bytes() for file in ('config.py',
                                                   'database.py')))
    return database.cached(f'database-nova-{name}',
                           lambda part: _build(part, source, venv))
