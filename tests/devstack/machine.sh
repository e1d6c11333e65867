#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a machine for devstack in namespaces (for mounts and the network) that
# the caller has made, and runs scripts of devstack's there, one after the
# other.
#
# machine.sh PLACE SCRIPT...
#   PLACE   a directory with localrc, what local.conf says. What each script
#           has left goes to PLACE/1-SCRIPT, PLACE/2-SCRIPT and so on:
#           etc (what differs from the /etc of before), stack ($DEST), groups
#           (names of volume groups), commands, output and status.
#   SCRIPT  stack, unstack or clean
# Variables: $TOP_DIR is devstack or what stands for it, $REPOSITORY this tree,
# $PYTHON what runs it; $CINDER_FILES has files of Cinder; $DM_RULES is the name
# of device-mapper's udev rules; $MISSING_MODULES the kernel has not, but after
# the installation of further ones with $EXTRA_MODULES; with $UNSTACK_DIES
# unstack.sh stops services and does no more.
set -eu

HERE=$(cd "$(dirname "$0")" && pwd)
PLACE=$1
shift

# Nothing else can be written, and no service of the real machine be reached.
mount --bind "$PLACE" "$PLACE"
mount -o remount,bind,ro /
mount -t tmpfs tmpfs /run
# As if there were a udev and a systemd.
mkdir -p /run/udev /run/systemd/system
touch /run/udev/control
# Always of the same name, which is in files.
export MACHINE=/run/machine TMPDIR=/run/machine/tmp
mkdir "$MACHINE"
cd "$MACHINE"
mkdir -p etc work bin groups devices tmp stack/cinder/etc
ln -s "$REPOSITORY" stack/cinder-dmclone
cp -r "$CINDER_FILES" stack/cinder/etc
mount -t overlay -o lowerdir=/etc,upperdir=etc,workdir=work overlay /etc

for name in apt-get cinder-rtstool dnf iscsiadm losetup lvremove lvs modprobe \
        openssl openstack pvs sudo systemctl udevadm vgcreate vgremove vgs; do
    ln -s "$HERE/command" "bin/$name"
done
# devstack names this one in full.
if [[ -e /bin/systemctl ]]; then
    mount --bind "$HERE/command" /bin/systemctl
fi

# The rules of device-mapper, by which a system numbers ours.
mount -t tmpfs tmpfs /usr/lib/udev/rules.d
touch "/usr/lib/udev/rules.d/$DM_RULES"
mkdir -p /etc/lvm /etc/systemd/system /etc/udev/rules.d
touch /etc/lvm/lvm.conf
echo 'stack:x:64999:64999::/opt/stack:/bin/bash' >>/etc/passwd

number=0
for script in boot "$@"; do
    left=$PLACE/$number-$script
    mkdir "$left"
    : >commands
    status=0
    if [[ $script != boot ]]; then
        # Without the rights to change the kernel, should a command be called
        # that stands above by mistake, or not.
        PATH=$MACHINE/bin:$PATH setpriv --bounding-set \
            -sys_admin,-sys_module,-net_admin \
            bash "$HERE/phases.sh" "$script" "$PLACE/localrc" \
            >"$left/output" 2>&1 || status=$?
    fi
    cp -a etc stack commands "$left"
    ls groups >"$left/groups"
    echo "$status" >"$left/status"
    number=$((number + 1))
done
