# SPDX-License-Identifier: Apache-2.0
"""Configuration files of Cinder in the lab."""
from __future__ import annotations

import pathlib
from collections.abc import Mapping

from lab.database import CINDER, CINDER_VOLUME
from lab.network import CONTROLLER
from lab.rest import KEYSTONE
from lab.services import PASSWORD, RABBIT_PORT

BACKEND = 'dmclone'
TRANSPORT = f'rabbit://lab:{PASSWORD}@{CONTROLLER}:{RABBIT_PORT}/'
# In hexadecimal digits, as os-brick gives it to cryptsetup.
KEY = '5e' * 32
Sections = dict[str, dict[str, object]]


def text(sections: Mapping[str, Mapping[str, object]]) -> str:
    """Sections in the form oslo.config reads."""
    lines = []
    for name, options in sections.items():
        lines.append(f'[{name}]')
        lines += [f'{key} = {value}' for key, value in options.items()]
    return '\n'.join(lines) + '\n'


def merged(sections: Mapping[str, Mapping[str, object]],
           more: Mapping[str, Mapping[str, object]]) -> Sections:
    """Sections with the options of others added, or in place of theirs."""
    return {name: {**sections.get(name, {}), **more.get(name, {})}
            for name in {**sections, **more}}


def user(name: str) -> dict[str, object]:
    """How a service says to Keystone who it is."""
    return {'auth_url': KEYSTONE, 'auth_type': 'password', 'username': name,
            'password': PASSWORD, 'project_name': 'service',
            'user_domain_id': 'default', 'project_domain_id': 'default'}


def _common(venv: pathlib.Path, state: str,
            more: Sections | None) -> Sections:
    return {
        'DEFAULT': {
            'transport_url': TRANSPORT,
            'auth_strategy': 'keystone',
            'default_volume_type': BACKEND,
            'state_path': state,
            'api_paste_config': f'{venv}/etc/cinder/api-paste.ini',
            'resource_query_filters_file':
                f'{venv}/etc/cinder/resource_filters.json',
            # Python in a node is several times slower than outside.
            'rpc_response_timeout': 180,
            'report_interval': 5,
            # A busy machine may keep a node from reporting for a while.
            'service_down_time': 120,
            'scheduler_default_filters':
                'AvailabilityZoneFilter,CapacityFilter,'
                'CapabilitiesFilter,JsonFilter,InstanceLocalityFilter',
            'scheduler_default_weighers': 'CapacityWeigher,CallerNodeWeigher',
            'osapi_volume_workers': 1,
            'default_log_levels':
                'cinder_dmclone=DEBUG,amqp=WARN,amqplib=WARN,'
                'sqlalchemy=WARN,oslo.messaging=INFO,iso8601=WARN,'
                'urllib3.connectionpool=WARN,keystonemiddleware=WARN,'
                'stevedore=WARN,oslo.service=INFO',
        },
        'database': {'connection': CINDER, 'max_retries': -1},
        'keystone_authtoken': {
            'www_authenticate_uri': KEYSTONE, **user('cinder'),
            'service_token_roles_required': 'true',
        },
        'oslo_concurrency': {'lock_path': f'{state}/lock'},
        # All encrypted volumes have one key.
        'key_manager': {
            'backend': 'cinder.keymgr.conf_key_mgr.ConfKeyManager',
            'fixed_key': KEY},
        **(more or {}),
    }


def controller(venv: pathlib.Path, state: pathlib.Path,
               more: Sections | None = None) -> str:
    """cinder.conf of the API and the scheduler.

    ``more`` are further sections.
    """
    sections = _common(venv, str(state), more)
    sections['DEFAULT']['host'] = 'controller'
    return text(sections)


def node(name: str, mgmt: str, data: str, venv: pathlib.Path, driver: str,
         backend: Mapping[str, object],
         default: Mapping[str, object],
         more: Sections | None = None,
         beside: Mapping[str, Mapping[str, object]] | None = None) -> str:
    """cinder.conf of a node.

    ``backend`` and ``default`` are added to the backend's section and to
    [DEFAULT]; ``more`` are further sections, ``beside`` further backends.
    """
    beside = beside or {}
    sections = _common(venv, '/var/lib/cinder', more)
    sections['DEFAULT'] |= {
        'host': name, 'my_ip': mgmt,
        'enabled_backends': ','.join([BACKEND, *beside]),
        'rootwrap_config': '/etc/cinder/rootwrap.conf', **default}
    sections['database']['connection'] = CINDER_VOLUME
    backends = {BACKEND: {'volume_driver': driver, **backend}, **beside}
    for title, options in backends.items():
        sections[title] = {
            'volume_backend_name': title, 'volume_group': 'cinder-volumes',
            'target_ip_address': data, **options}
    return text(sections)


def rootwrap(venv: pathlib.Path) -> str:
    """rootwrap.conf of a node."""
    return text({'DEFAULT': {
        'filters_path': '/etc/cinder/rootwrap.d',
        'exec_dirs': f'{venv}/bin,/sbin,/usr/sbin,/bin,/usr/bin',
        'use_syslog': False,
    }})


def sudoers(venv: pathlib.Path) -> str:
    """What sudo lets the user of cinder-volume do in a node."""
    return (f'Defaults:cinder secure_path={venv}/bin:/usr/sbin:/usr/bin:'
            '/sbin:/bin, !requiretty, !use_pty, !syslog\n'
            f'cinder ALL=(root) NOPASSWD: {venv}/bin/cinder-rootwrap '
            '/etc/cinder/rootwrap.conf *\n')
