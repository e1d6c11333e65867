# SPDX-License-Identifier: Apache-2.0
"""What a node has while its driver works on it.

Most tools list and then ask for each: what goes in between is gone, and that
is no error. Every other error is one.
"""
from __future__ import annotations

import hashlib
import re
import typing
from collections.abc import Sequence

from lab.agent import Result
from lab.errors import CommandError
from lab.processes import wait_for

GROUP = 'cinder-volumes'
META_GROUP = 'cinder-metadata'

# All that dmsetup says of a device that has gone: before it was asked for,
# between its being found and its being asked for, and at the end.
_GONE = re.compile(
    r'Device (\S+ )?(does not exist|not found)\.?|'
    r'device-mapper: [\w ]+ ioctl on \S+ +failed: No such device or address|'
    r'Command failed\.?')
# For scripts: what a file of sysfs or configfs holds, in $value; false if it
# is gone. One that is about to go can be seen, but not read.
VALUE = r'''
value() {
    tries=0
    until value=$(cat "$1" 2>/dev/null); do
        [ -e "$1" ] || return 1
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { cat "$1"; exit 1; }
        sleep 0.1
    done
}
'''
# A line for each session: the word, its target's IQN and its state.
SESSIONS = r'''
for path in /sys/class/iscsi_session/session*; do
    value "$path/targetname" || continue
    iqn=$value
    value "$path/state" || continue
    echo "session	$iqn	$value"
done
'''
# A pattern that matches nothing stays as it is.
_NAMES = r'''
for path in /sys/kernel/config/target/{}; do
    [ ! -e "$path" ] || echo "${{path##*/}}"
done
'''


class Node(typing.Protocol):
    """What is needed of a lab.node.Node."""

    disk: str
    meta_disk: str

    def run(self, command: str | Sequence[str],
            check: bool = True) -> Result:
        """Run a command as root."""


def front(host: str, lv: str) -> str:
    """Name of the device that a server on a host opens."""
    return (f'dmclone-front-{hashlib.sha256(host.encode()).hexdigest()[:8]}'
            f'-{lv}')


def _ask(node: Node, *words: str) -> str | None:
    """What dmsetup prints; None if something was gone by then."""
    result = node.run(['dmsetup', *words], check=False)
    if not result.code:
        return result.stdout
    lines = [line.strip() for line in result.stderr.splitlines()]
    if lines and all(map(_GONE.fullmatch, lines)):
        return None
    raise CommandError(f'dmsetup {" ".join(words)}', result.code,
                       result.stderr or result.stdout)


def dmsetup(node: Node, verb: str, *options: str) -> str:
    """What ``dmsetup`` prints of all devices.

    :raises CommandError: if it fails for another reason than a device that
        went meanwhile
    """
    # An empty answer is one too.
    found = wait_for(f'an answer to dmsetup {verb} in one piece', lambda: [
        text for text in [_ask(node, verb, *options)] if text is not None],
        60, 0.05)
    assert isinstance(found, list)
    return str(found[0])


def device(node: Node, name: str, verb: str, *options: str) -> str | None:
    """What ``dmsetup`` prints of one device; None if there is none."""
    return _ask(node, verb, *options, name)


def message(node: Node, name: str, *words: str) -> bool:
    """Send a message to a device's target; whether there is the device."""
    return _ask(node, 'message', name, '0', *words) is not None


def by_device(text: str) -> dict[str, str]:
    """``dmsetup table`` or ``status``, by device; a line each, or "; "."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(': ')
        if colon:
            found[name] = f'{found[name]}; {rest}' if name in found else rest
    return found


def devices(node: Node) -> list[str]:
    """Names of the dm devices."""
    return [line.split()[0] for line in dmsetup(node, 'ls').splitlines()
            if '(' in line]


def tables(node: Node) -> dict[str, str]:
    """Tables of the dm devices, by name."""
    return by_device(dmsetup(node, 'table'))


def groups(node: Node) -> dict[str, str]:
    """The volume groups of the backend, each with its disk."""
    found = {GROUP: node.disk, META_GROUP: node.meta_disk}
    return {name: disk for name, disk in found.items() if disk}


def lvs(node: Node, *options: str) -> str:
    """What LVM's ``lvs`` prints of these groups.

    It is shown their disks only: it would wait for an imported one whose
    lender is away.
    """
    found = groups(node)
    return node.run(['lvs', '--devices', ','.join(found.values()),
                     '--noheadings', *options, *found]).stdout


def volumes(node: Node) -> dict[str, frozenset[str]]:
    """Logical volumes of the backend's groups, with their tags."""
    text = lvs(node, '-o', 'lv_name,lv_tags')
    lines = [line.split() for line in text.splitlines()]
    return {words[0]: frozenset(','.join(words[1:]).split(',')) - {''}
            for words in lines if words}


def targets(node: Node) -> list[str]:
    """IQNs of the iSCSI targets."""
    return node.run(_NAMES.format('iscsi/iqn.*')).stdout.split()


def backstores(node: Node) -> list[str]:
    """Names of the backstores of block devices."""
    names = node.run(_NAMES.format('core/iblock_*/*')).stdout.split()
    return [name for name in names if name not in ('hba_info', 'hba_mode')]


def sessions(node: Node) -> dict[str, str]:
    """State of the iSCSI sessions, by the target's IQN."""
    lines = node.run(VALUE + SESSIONS).stdout.splitlines()
    return {iqn: state for _, iqn, state in (
        line.split('\t') for line in lines)}
