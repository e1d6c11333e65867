# SPDX-License-Identifier: Apache-2.0
"""What LVM wrote on the disks of a group that it does not find, as root.

A description of a group is a text; a disk has a ring of them, and a header
that says which one holds.
"""

from __future__ import annotations

import os
import re
import tempfile

from cinder_dmclone import privileged
from cinder_dmclone.privileged import block
from cinder_dmclone.privileged import lvm
from cinder_dmclone.privileged import process
from cinder_dmclone.privileged import syscalls

_SECONDS = 30.0
_WAIT_SECONDS = 100
_BEGUN = 10
_FLUSH_SECONDS = 30.0

_UNKNOWN = re.compile(r'^\s*(/\S+)\s+\[unknown\]\s*$', re.MULTILINE)
# Of what ``lvm.config`` sets, where LVM goes by a devices file (``_accept_p``
# in lib/filters/filter-regex.c).
_NOTICE = re.compile(r'^\s*Please remove the lvm\.conf (global_)?filter, .*$',
                     re.MULTILINE)


def _pvck(disk: str, *words: str) -> process.Outcome:
    return process.outcome(
        ['lvm', 'pvck', *words, block.device(disk), *lvm.config()], _SECONDS)


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def lost() -> list[str]:
    """The disks that are in use by groups which LVM does not find.

    :raises CommandFailed: if LVM cannot be started
    """
    done = process.outcome(['lvm', 'pvs', '--noheadings', '-o',
                            'pv_name,vg_name', *lvm.config()], _SECONDS)
    return _UNKNOWN.findall(done.output.decode(errors='replace'))


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def headers(disk: str) -> str:
    """The headers of a disk, and where the description is that holds.

    :raises CommandFailed: see ``lost``
    """
    # Its status says that something is wrong with them.
    return _pvck(disk, '--dump', 'headers').output.decode(errors='replace')


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def search(disk: str) -> str:
    """All descriptions that a disk has, with when and why each was made.

    :raises CommandFailed: see ``lost``
    """
    return _pvck(disk, '--dump', 'metadata_search', '-v').output.decode(
        errors='replace')


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def extract(disk: str, at: int) -> tuple[str, str]:
    """A description, and what is the matter with it; nothing if it is whole.

    :param at: where it begins
    """
    with tempfile.TemporaryDirectory(prefix='dmclone-') as folder:
        path = os.path.join(folder, 'description')
        done = _pvck(disk, '--dump', 'metadata_search', '--settings',
                     f'metadata_offset={int(at)}', '-f', path)
        wrong = _NOTICE.sub('', done.errors.decode(errors='replace')).strip()
        try:
            with open(path, 'rb') as file:
                # It ends with a zero.
                text = file.read().rstrip(b'\0').decode()
        except (OSError, UnicodeDecodeError) as error:
            return '', f'{wrong} {error}'
    if done.status and not wrong:
        wrong = f'pvck ended with status {done.status}'
    return text, wrong


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def replace(disk: str, text: str) -> None:
    """Make a description the one that holds on a disk, durably.

    :raises CommandFailed: if it cannot be written
    """
    with tempfile.TemporaryDirectory(prefix='dmclone-') as folder:
        path = os.path.join(folder, 'description')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        process.run(['lvm', 'pvck', '--yes', '--repair', '-f', path,
                     block.device(disk), *lvm.config()], _SECONDS)
    syscalls.fsync(disk, _FLUSH_SECONDS)
