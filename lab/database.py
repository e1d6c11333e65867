# SPDX-License-Identifier: Apache-2.0
"""The databases of Keystone and Cinder: made once, copied for each lab."""
from __future__ import annotations

import contextlib
import pathlib
import shutil
import site
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lab import install, remains
from lab.errors import LabError
from lab.network import CONTROLLER, Network
from lab.processes import run
from lab.rest import KEYSTONE, Client
from lab.services import (CINDER_PORT, GLANCE_PORT, KEYSTONE_PORT, PASSWORD,
                          Keystone, MariaDB, environment)
from lab.virtualenv import site_packages

_HERE = pathlib.Path(__file__).parent
CINDER = f'mysql+pymysql://lab:{PASSWORD}@{CONTROLLER}/cinder'
# What nodes have: an account with the role that operators are given.
CINDER_VOLUME = f'mysql+pymysql://node:{PASSWORD}@{CONTROLLER}/cinder'
_ROLE = _HERE.parent / 'etc/mariadb/cinder-volume.sql'
GLANCE = f'mysql+pymysql://lab:{PASSWORD}@{CONTROLLER}/glance'
_ENDPOINTS = (
    ('cinder', 'block-storage',
     f'http://{CONTROLLER}:{CINDER_PORT}/v3/$(project_id)s'),
    ('nova', 'compute', f'http://{CONTROLLER}:{KEYSTONE_PORT}/compute/v2.1'),
    ('glance', 'image', f'http://{CONTROLLER}:{GLANCE_PORT}'),
    ('neutron', 'network', f'http://{CONTROLLER}:{KEYSTONE_PORT}/network'),
)

_at_work: list[Network] = []


def query(venv: pathlib.Path, socket: pathlib.Path, statement: str,
          database: str = 'cinder') -> list[tuple[Any, ...]]:
    """Run one statement as the database's root; returns all rows.

    Raises LabError if the database does not answer or refuses it.
    """
    try:
        import pymysql
    except ImportError:
        site.addsitedir(str(site_packages(venv)))
        import pymysql
    try:
        with contextlib.closing(pymysql.connect(
                unix_socket=str(socket), user='root',
                database=database or None, autocommit=True,
                connect_timeout=300)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
    except pymysql.MySQLError as error:
        raise LabError(f'{statement[:80]}: {error}') from error


def _admit_nodes(venv: pathlib.Path, socket: pathlib.Path) -> None:
    """Make the account of nodes, with no more rights than they need."""
    text = ''.join(line for line in _ROLE.read_text().splitlines(True)
                   if not line.startswith('--'))
    for statement in (
            *text.split(';'),
            f"CREATE USER node@'%' IDENTIFIED BY '{PASSWORD}'",
            "GRANT cinder_volume TO node@'%'",
            "SET DEFAULT ROLE cinder_volume FOR node@'%'"):
        if statement.strip():
            query(venv, socket, statement)


def add_user(client: Client, project: str, user: str, *roles: str) -> None:
    """Give a user roles in a project; both are made if they are missing."""
    known = {role['name']: role['id']
             for role in client.keystone('GET', '/roles')['roles']}
    where = client.keystone('GET', f'/projects?name={project}')['projects']
    project_id = where[0]['id'] if where else client.keystone(
        'POST', '/projects',
        {'project': {'name': project, 'domain_id': 'default'}},
    )['project']['id']
    found = client.keystone('GET', f'/users?name={user}')['users']
    user_id = found[0]['id'] if found else client.keystone(
        'POST', '/users',
        {'user': {'name': user, 'password': PASSWORD,
                  'domain_id': 'default'}})['user']['id']
    for role in roles:
        client.keystone('PUT', f'/projects/{project_id}/users/{user_id}'
                               f'/roles/{known[role]}')


def add_endpoint(client: Client, name: str, kind: str, url: str) -> None:
    """Put a service into the catalogue, instead of one of its name."""
    for old in client.keystone('GET', f'/services?name={name}')['services']:
        client.keystone('DELETE', f'/services/{old["id"]}')
    service_id = client.keystone('POST', '/services', {
        'service': {'name': name, 'type': kind}})['service']['id']
    for interface in ('public', 'internal', 'admin'):
        client.keystone('POST', '/endpoints', {
            'endpoint': {'service_id': service_id, 'url': url,
                         'interface': interface, 'region_id': 'RegionOne'}})


@contextlib.contextmanager
def workshop(path: pathlib.Path) -> Iterator[Network]:
    """A network for services that make what is to be in ``path``.

    One process at a time does so; the last one may have been killed.
    """
    claim = remains.Claim(f'template-{install.digest(bytes(path))}')
    try:
        remains.remove(claim.name)
        network = Network(claim.name)
        network.create(nodes=0)
        _at_work.append(network)
        yield network
    finally:
        _at_work.clear()
        claim.clear()


def abandon() -> None:
    """Let what is being made in a workshop of this process fail."""
    for network in list(_at_work):
        network.destroy()


def _build(path: pathlib.Path, venv: pathlib.Path) -> None:
    """Make the databases in ``path`` with services of their own."""
    with workshop(path) as network:
        mariadb = MariaDB(path, network)
        keystone = Keystone(path, network, venv)
        mariadb.prepare()
        run('mariadb-install-db', '--no-defaults', '--user=root',
            '--skip-test-db', '--auth-root-authentication-method=socket',
            f'--datadir={mariadb.data}')
        mariadb.start()
        for name in ('keystone', 'cinder', 'glance'):
            query(venv, mariadb.socket, f'CREATE DATABASE {name}', '')
        query(venv, mariadb.socket, "GRANT ALL ON *.* TO lab@'%' "
              f"IDENTIFIED BY '{PASSWORD}'", '')
        keystone.prepare()
        keystone.keys.mkdir()
        keystone.manage('db_sync')
        owner = ('--keystone-user', 'root', '--keystone-group', 'root')
        keystone.manage('fernet_setup', *owner)
        keystone.manage('credential_setup', *owner)
        keystone.manage('bootstrap', '--bootstrap-password', PASSWORD,
                        '--bootstrap-region-id', 'RegionOne',
                        *(word for kind in ('public', 'internal', 'admin')
                          for word in (f'--bootstrap-{kind}-url',
                                       KEYSTONE)))
        for name, url, *words in (('cinder', CINDER, 'db', 'sync'),
                                  ('glance', GLANCE, 'db_sync')):
            conf = path / f'{name}.conf'
            conf.write_text(f'[database]\nconnection = {url}\n')
            run(*network.argv(f'{venv}/bin/{name}-manage', '--config-file',
                              str(conf), *words), env=environment())
        _admit_nodes(venv, mariadb.socket)
        keystone.start()
        client = Client(network)
        for name in ('cinder', 'glance'):
            add_user(client, 'service', name, 'admin', 'service')
        add_user(client, 'demo', 'demo', 'member')
        for service in _ENDPOINTS:
            add_endpoint(client, *service)
        keystone.stop()
        mariadb.stop()


def template(venv: pathlib.Path) -> pathlib.Path:
    """The cached databases for this virtualenv and these services."""
    name = install.digest(
        venv.name.encode(), _ROLE.read_bytes(),
        (_HERE / 'database.py').read_bytes(),
        (_HERE / 'services.py').read_bytes())
    return cached(f'database-{name}', lambda part: _build(part, venv))


def cached(name: str,
           build: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """What ``build`` makes in the directory it is given; made once."""
    cache = install.cache_directory()
    path = cache / name
    with install.locked(cache / 'database.lock'):
        if not path.exists():
            print(f'lab: preparing {path} (a minute)', file=sys.stderr)
            part = cache / 'database.part'
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            build(part)
            part.rename(path)
    return path


def copy(source: pathlib.Path, mariadb: MariaDB,
         keystone: Keystone) -> None:
    """Give a lab's services the template's data."""
    mariadb.prepare()
    keystone.prepare()
    run('cp', '-a', str(source / 'mariadb' / 'data'), str(mariadb.data))
    run('cp', '-a', str(source / 'keystone' / 'keys'), str(keystone.keys))
