# SPDX-License-Identifier: Apache-2.0
"""What Kolla's cinder_volume container has that a host has not.

As in ansible/roles/cinder/defaults/main.yml of kolla-ansible 1a681814e and
extend_start.sh of kolla 5d77668da: it is privileged, so no capability is
missing, and has /dev and /run of its host. /sys is its own, with the host's
configfs bound; /etc/lvm is that of its image; /etc/iscsi belongs to the user
of cinder-volume, with all that is in it when the container starts.
"""
from __future__ import annotations

from collections.abc import Sequence

OWNER = 'cinder:cinder'

# On the host, where systemd has mounted it.
CONFIGFS = ('modprobe configfs; mountpoint -q /sys/kernel/config || '
            'mount -t configfs configfs /sys/kernel/config')
_ENTER = f'''
own=/run/container
mkdir -p $own/config $own/lvm
mount --bind /sys/kernel/config $own/config
umount --recursive --lazy /sys
mount -t sysfs sysfs /sys
mount --bind $own/config /sys/kernel/config
mount -t tmpfs tmpfs $own/lvm
cp /etc/lvm/lvm.conf $own/lvm
mount --bind $own/lvm /etc/lvm
chown -Rh {OWNER} /etc/iscsi
chmod 2775 /etc/iscsi
exec "$@"
'''
# What is the host's is root's there.
LEFT = 'chown -Rh root:root /etc/iscsi; chmod 755 /etc/iscsi'


def inside(command: Sequence[str]) -> list[str]:
    """The command line that runs another one in such a container."""
    return ['unshare', '--mount', 'sh', '-ec', _ENTER, 'sh', *command]
