# SPDX-License-Identifier: Apache-2.0
"""tempest.conf of a lab with Nova, and what its tests need in it."""
from __future__ import annotations

import functools
import os
import pathlib

from lab import config, guest, install
from lab.backup import BackupService
from lab.lab import FAULTY_DRIVER, Lab
from lab.node import Size
from tests.functional import environment
from tests.tempest import settings

_SECOND_IMAGE = '0f6a3d1b-2c84-4e57-9b1d-7a5e82c406f9'
_FLAVORS = ('one', 'two')
_MULTIATTACH = 'multiattach'
# In tempest's directory.
_IMAGE_FILE = 'guest.img'
# Several servers at once, beside all services of a node.
_SIZE = Size(memory_mib=2560)


def sections(directory: pathlib.Path) -> config.Sections:
    """What the file has; ``directory`` is for tempest's own locks."""
    return config.merged(settings.sections(directory), {
        'service_available': {'nova': True},
        'compute': {
            'image_ref_alt': _SECOND_IMAGE, 'flavor_ref': _FLAVORS[0],
            'flavor_ref_alt': _FLAVORS[1], 'min_compute_nodes': 2,
            'max_microversion': 'latest', 'build_timeout': 600},
        # A server has no network.
        'validation': {'run_validation': False},
        'compute-feature-enabled': {
            'live_migration': True, 'live_migrate_back_and_forth': True,
            'volume_backed_live_migration': True, 'cold_migration': True,
            'resize': True, 'shelve': True, 'snapshot': True, 'rescue': True,
            'stable_rescue': True,
            'console_output': True, 'volume_multiattach': True,
            'attach_encrypted_volume': True, 'vnc_console': False,
            # Of disks that are Nova's own.
            'block_migration_for_live_migration': False},
        'volume': {'backup_driver': 'posix',
                   'volume_type_multiattach': _MULTIATTACH},
        'volume-feature-enabled': {
            'backup': True, 'enable_volume_image_dep_tests': True},
        'scenario': {'img_file': directory / _IMAGE_FILE,
                     'img_disk_format': 'raw'},
    })


@functools.cache
def lab() -> Lab:
    """The lab of this process: two nodes, with images and backups."""
    # Cinder and Nova look at images with the first, with the second a node
    # takes the disk of a server that is resized (scp), os-brick has the
    # third, and the fourth makes disks with a configuration.
    install.ensure_packages(['qemu-utils', 'openssh-sftp-server',
                             'cryptsetup-bin', 'genisoimage'])
    found = environment.start(lambda number: Lab(
        f'tempest-nova-{number}', nodes=2, nova=True, driver=FAULTY_DRIVER,
        # On native threads images hang, see tests/tempest/test_upstream.py.
        size=_SIZE,
        backend={'volume_clear': 'none', 'lab_gib': environment.gib()},
        default={'rpc_response_timeout': 100,
                 'backend_stats_polling_interval':
                 environment.STATS_SECONDS}))
    image = guest.build(install.cache_directory())
    pathlib.Path(os.environ['TEMPEST_CONFIG_DIR'], _IMAGE_FILE).symlink_to(
        image)
    for each in settings.IMAGE, _SECOND_IMAGE:
        settings.provide_image(found, each, str(image))
    for number, name in enumerate(_FLAVORS, 1):
        # Who is no administrator cannot boot an image with a disk of nothing;
        # a node has one processor.
        found.nova('POST', '/flavors', {'flavor': {
            'id': name, 'name': name, 'vcpus': 1, 'ram': 128 * number,
            'disk': 1}})
    found.create_type(_MULTIATTACH, multiattach='<is> True')
    backup = BackupService(found.nodes[0], found.venv, zone='nova')
    backup.install()
    backup.start(wait=True)
    return found
