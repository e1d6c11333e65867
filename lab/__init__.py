# SPDX-License-Identifier: Apache-2.0
"""A storage cloud in a box: real kernels, real Cinder, no spare machines.

    with Lab('demo', nodes=2) as lab:
        volume = lab.create_volume(1, node=1)
        at = lab.attach_volume(volume, node=2)
        lab.nodes[1].run('dmsetup table')
        lab.openstack('volume', 'show', volume)
        lab.sql('SELECT host, provider_id FROM volumes')

The control plane (MariaDB, RabbitMQ, Keystone, cinder-api and
cinder-scheduler) runs on the machine itself, in a network namespace. Each
node is a user-mode-linux kernel: its root is the machine's file system,
read-only; /etc, /var, /root and /tmp are its own. /tmp is empty after a boot,
the others stay. A node that boots starts udevd and iscsid and activates its
volume group; cinder-volume is started by ``node.volume.start()``, and what
else shall start at boot goes into the node's /etc/rc.local.

``Lab(nova=True)`` has servers too: see lab.compute.

Everything of a lab is in /var/lib/cinder-dmclone-lab/NAME, what is kept
between labs in /var/cache/cinder-dmclone-lab ($XDG_CACHE_HOME).
"""
from lab.errors import CommandError, LabError
from lab.lab import FAULTY_DRIVER, Lab
from lab.rest import RestError

__all__ = ['FAULTY_DRIVER', 'CommandError', 'Lab', 'LabError', 'RestError']
