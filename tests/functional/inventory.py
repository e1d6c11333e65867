# SPDX-License-Identifier: Apache-2.0
"""All that a node has and that the driver might have made, as it is."""
from __future__ import annotations

import dataclasses
import typing

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

# One line for each thing: its kind, a tab, its fields with tabs between.
# LVM is shown one disk only: it would wait for an imported one whose lender is
# away.
_SCRIPT = r'''
dmsetup info -c --noheadings --separator '	' \
    -o name,uuid,attr,open,tables_loaded | sed 's/^/dm	/'
dmsetup table | sed 's/: /	/;s/^/table	/'
lvs --devices "$DISK" --noheadings --separator '	' --units b --nosuffix \
    -o vg_name,lv_name,lv_size,lv_tags | sed 's/^ */lv	/'
cd /sys/kernel/config/target
find iscsi -mindepth 1 -maxdepth 1 -name 'iqn.*' -printf 'target	%f\n'
find iscsi -path 'iscsi/iqn.*/tpgt_*/acls/*' -mindepth 4 -maxdepth 4 \
    -printf 'acl	%P\n' | sed 's:/tpgt_1/acls/:	:'
for path in core/iblock_*/*/udev_path core/fileio_*/*/udev_path; do
    [ ! -e "$path" ] || { read device <"$path"; path=${path%/*}
    echo "backstore	${path##*/}	$device"; }
done
for path in /sys/class/iscsi_session/session*; do
    [ ! -d "$path" ] || { read iqn <"$path/targetname"
    read state <"$path/state"; echo "session	$iqn	$state"; }
done
for path in /sys/block/sd*; do
    [ ! -e "$path" ] || { read model <"$path/device/model"
    echo "disk	${path##*/}	$model"; }
done
for root in /etc/iscsi /var/lib/iscsi; do
    for path in "$root"/nodes/iqn.* "$root"/static/iqn.*; do
        [ ! -e "$path" ] || echo "record	${path##*/}	$path"
    done
done
ps -eo stat=,pid=,args= | awk '$1 ~ /^D/ && $3 !~ /^\[/ {
    $1 = ""; print "stuck\t" $0}'
'''


@dataclasses.dataclass(frozen=True)
class Device:
    """A dm device."""

    name: str
    uuid: str
    suspended: bool
    readonly: bool
    pending: bool
    table: str


@dataclasses.dataclass(frozen=True)
class Volume:
    """A logical volume; ``size`` in bytes."""

    group: str
    name: str
    size: int
    tags: frozenset[str]


@dataclasses.dataclass
class Inventory:
    """What one look at a node found."""

    text: str
    devices: dict[str, Device] = dataclasses.field(default_factory=dict)
    volumes: dict[str, Volume] = dataclasses.field(default_factory=dict)
    targets: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    backstores: dict[str, str] = dataclasses.field(default_factory=dict)
    sessions: dict[str, str] = dataclasses.field(default_factory=dict)
    disks: dict[str, str] = dataclasses.field(default_factory=dict)
    records: dict[str, str] = dataclasses.field(default_factory=dict)
    stuck: list[str] = dataclasses.field(default_factory=list)


def take(node: LabNode) -> Inventory:
    """Look at a node."""
    text = node.run(f'DISK={node.disk}\n{_SCRIPT}', check=False).stdout
    return parse(text)


def parse(text: str) -> Inventory:
    """Read the script's output."""
    found = Inventory(text)
    lines = [line.split('\t') for line in text.splitlines()]
    tables: dict[str, str] = {}
    for kind, *fields in lines:
        if kind == 'table' and len(fields) == 2:
            tables[fields[0]] = f'{tables.get(fields[0], "")}{fields[1]}; '
    for kind, *fields in lines:
        if kind == 'dm' and len(fields) == 5:
            name, uuid, attributes, _, loaded = fields
            found.devices[name] = Device(
                name, uuid, suspended=attributes[2] == 's',
                readonly=attributes[3] == 'r',
                pending=loaded in ('Inactive', 'Both'),
                table=tables.get(name, ''))
        elif kind == 'lv' and len(fields) == 4:
            # Words of LVM stand there, too, if it finds something wrong.
            found.volumes[fields[1]] = Volume(
                fields[0], fields[1], int(fields[2]),
                frozenset(tag for tag in fields[3].split(',') if tag))
        elif kind == 'target':
            found.targets[fields[0]] = set()
        elif kind == 'acl':
            found.targets[fields[0]].add(fields[1])
        elif kind == 'stuck':
            found.stuck.append(fields[0])
        elif kind in ('backstore', 'session', 'disk', 'record'):
            getattr(found, kind + 's')[fields[0]] = fields[1]
    return found
