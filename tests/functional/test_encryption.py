# SPDX-License-Identifier: Apache-2.0
"""A volume of an encrypted type, opened by os-brick as Nova does."""
from __future__ import annotations

import json
import uuid

from lab import install
from lab.attached import AttachedVolume
from tests.functional import base
from tests.functional import environment

# What Nova's host does before it gives a server the device, and after. The
# key manager is the one of cinder.conf.
_OS_BRICK = '''
import json, sys
from castellan import key_manager
from cinder import context
from os_brick import encryptors
from oslo_concurrency import processutils
from oslo_config import cfg
verb, path, metadata = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
cfg.CONF(['--config-file', '/etc/cinder/cinder.conf'], project='cinder')
encryptor = encryptors.get_volume_encryptor(
    root_helper='', keymgr=key_manager.API(cfg.CONF),
    connection_info={'data': {'device_path': path}},
    execute=processutils.execute, **metadata)
if verb == 'attach':
    encryptor.attach_volume(context.get_admin_context(), **metadata)
else:
    encryptor.detach_volume(**metadata)
print('/dev/mapper/' + encryptor.dev_name)
'''
# LUKS keeps the first 16 MiB for itself, at most.
BLOCKS = (base.GIB - (16 << 20)) // 4096


@environment.only_long
class EncryptionTest(base.FunctionalTest):
    """It moves while it is open and encrypted."""

    def setUp(self) -> None:
        super().setUp()
        install.ensure_packages(['cryptsetup-bin'])

    def encrypted(self) -> str:
        """A new volume on node 1, of a type with LUKS."""
        answer = self.lab.cinder('POST', '/types', {'volume_type': {
            'name': str(uuid.uuid4()),
            'extra_specs': {'volume_backend_name': 'dmclone'}}})
        kind = answer['volume_type']['id']
        self.lab.cinder('POST', f'/types/{kind}/encryption', {'encryption': {
            'provider': 'luks', 'control_location': 'front-end',
            'cipher': 'aes-xts-plain64', 'key_size': 256}})
        volume = self.lab.create_volume(1, 1, wait=False, volume_type=kind)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        return volume

    def os_brick(self, verb: str, at: AttachedVolume) -> AttachedVolume:
        """Open the volume of an attachment, or close it; what is inside."""
        metadata = self.lab.cinder('GET', f'/volumes/{at.volume}/encryption')
        path = at.node.run(
            [f'{self.lab.venv}/bin/python', '-c', _OS_BRICK, verb, at.path,
             json.dumps(metadata)]).stdout.strip()
        return AttachedVolume(at.id, at.volume, at.node, path)

    def test_a_move(self) -> None:
        volume = self.encrypted()
        image = self.image()
        at = self.attach(volume, self.node1)
        image.write(self.os_brick('attach', at), 1, 200, BLOCKS // 201)
        self.os_brick('detach', at)
        self.detach(at)
        at = self.attach_slowly(volume, self.node1, self.node2)
        inside = self.os_brick('attach', at)
        self.assertEqual('', image.blocks_difference(inside))
        image.write(inside, 2, 200, BLOCKS // 201)
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assertEqual('', image.blocks_difference(inside))
        self.os_brick('detach', at)
        self.detach(at)
        at = self.attach(volume, self.node2)
        self.assertEqual('', image.blocks_difference(
            self.os_brick('attach', at)))
        self.os_brick('detach', at)
