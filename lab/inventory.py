# SPDX-License-Identifier: Apache-2.0
"""All that a node has and that the driver might have made, as it is."""
from __future__ import annotations

import dataclasses

from lab import look

# One line for each thing: its kind, a tab, its fields with tabs between.
_SCRIPT = look.VALUE + r'''
cd /sys/kernel/config/target
for path in iscsi/iqn.*; do
    [ ! -e "$path" ] || echo "target	${path##*/}"
done
for path in iscsi/iqn.*/tpgt_*/acls/*; do
    [ ! -e "$path" ] || { target=${path#iscsi/}
    echo "acl	${target%%/*}	${path##*/}"; }
done
for path in core/iblock_*/*/udev_path core/fileio_*/*/udev_path; do
    value "$path" || continue
    path=${path%/*}
    echo "backstore	${path##*/}	$value"
done
''' + look.SESSIONS + r'''
for path in /sys/block/sd*; do
    value "$path/device/model" || continue
    echo "disk	${path##*/}	$value"
done
for root in /etc/iscsi /var/lib/iscsi; do
    for path in "$root"/nodes/iqn.* "$root"/static/iqn.*; do
        [ ! -e "$path" ] || echo "record	${path##*/}	$path"
    done
done
ps -eo stat=,pid=,args= | awk '$1 ~ /^D/ && $3 !~ /^\[/ {
    $1 = ""; print "stuck\t" $0}'
'''
_COLUMNS = 'name,uuid,attr,open,tables_loaded'


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


def take(node: look.Node) -> Inventory:
    """Look at a node."""
    info = look.dmsetup(node, 'info', '-c', '--noheadings', '--separator',
                        '\t', '-o', _COLUMNS)
    tables = look.tables(node)
    volumes = look.lvs(node, '--separator', '\t', '--units', 'b',
                       '--nosuffix', '-o', 'vg_name,lv_name,lv_size,lv_tags')
    # What went between the two has no table.
    there = {*tables, *look.devices(node)}
    return parse(''.join([
        *(f'dm\t{line}\n' for line in info.splitlines()
          if line.partition('\t')[0] in there),
        *(f'table\t{name}\t{table}\n' for name, table in tables.items()),
        *(f'lv\t{line.lstrip(" ")}\n' for line in volumes.splitlines()),
        node.run(_SCRIPT).stdout]))


def parse(text: str) -> Inventory:
    """Read the script's output."""
    found = Inventory(text)
    lines = [line.split('\t') for line in text.splitlines()]
    tables: dict[str, str] = {}
    for kind, *fields in lines:
        if kind == 'table':
            tables[fields[0]] = fields[1]
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
