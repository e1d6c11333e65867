# SPDX-License-Identifier: Apache-2.0
"""tempest.conf: what the lab is, and what the driver can."""
from __future__ import annotations

import atexit
import os
import pathlib
import secrets
import typing
from collections.abc import Callable

from lab import config, remains
from lab.rest import KEYSTONE
from lab.services import PASSWORD

if typing.TYPE_CHECKING:
    from lab.lab import Lab

# The id of the image that volumes are made of.
IMAGE = '7d1c04ae-5b92-4f36-8e60-c93a1f5db827'


def sections(directory: pathlib.Path) -> config.Sections:
    """What the file has; ``directory`` is for tempest's own locks.

    What the driver cannot do yet is not switched off here: the tests that
    need it are on the list of chosen.EXCLUDED, where it is seen when it can.
    """
    return {
        'DEFAULT': {'log_file': directory / 'tempest.log'},
        'auth': {
            'use_dynamic_credentials': True,
            # Of a Neutron that has nothing.
            'create_isolated_networks': False,
            'admin_username': 'admin', 'admin_password': PASSWORD,
            'admin_project_name': 'admin', 'admin_domain_name': 'Default'},
        'identity': {'uri_v3': KEYSTONE},
        'service_available': {
            'cinder': True, 'glance': True, 'horizon': False,
            # Without it tests of volumes are skipped.
            'neutron': True, 'nova': False, 'swift': False},
        'compute': {'image_ref': IMAGE},
        'enforce_scope': {'cinder': True},
        'volume': {
            'volume_type': config.BACKEND, 'storage_protocol': 'iSCSI',
            # What the LV of an unmanaged volume is called.
            'manage_volume_ref': 'source-name,unmanaged-%s',
            'vendor_name': 'Open Source', 'min_microversion': '3.0',
            'max_microversion': 'latest', 'build_timeout': 600},
        'volume-feature-enabled': {
            'snapshot': True, 'clone': True, 'manage_volume': True,
            'volume_revert': True, 'extend_volume_with_snapshot': True,
            'concurrency_tests': True,
            # There is no cinder-backup, and images are tested elsewhere.
            'backup': False, 'enable_volume_image_dep_tests': False,
            # They have no LV of their own.
            'manage_snapshot': False},
        'oslo_concurrency': {'lock_path': directory / 'lock'},
    }


def use(has: Callable[[pathlib.Path], config.Sections]) -> None:
    """Let tempest find the file; it is read when tests are imported."""
    # Like a lab, so that it goes with them however this process ends.
    claim = remains.Claim(f'tempest-{secrets.token_hex(4)}')
    atexit.register(claim.clear)
    directory = remains.ROOT / claim.name
    directory.mkdir(parents=True)
    (directory / 'tempest.conf').write_text(config.text(has(directory)))
    os.environ['TEMPEST_CONFIG_DIR'] = str(directory)
    os.environ['TEMPEST_CONFIG'] = 'tempest.conf'


def provide_image(lab: Lab, image: str, file: str) -> None:
    """Let a lab have an image of this id, for everybody."""
    if image not in str(lab.openstack('image', 'list')):
        lab.openstack('image', 'create', '--id', image, '--public',
                      '--disk-format', 'raw', '--file', file, image)
