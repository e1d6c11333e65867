# SPDX-License-Identifier: Apache-2.0
"""The iSCSI initiator (open-iscsi), as root.

A CHAP password must not show in a process list or in a log of commands, so
it is never an argument of iscsiadm: ``-o new`` makes the node record in the
place and layout of the installed version, with the operator's defaults of
iscsid.conf, and the secret is then written into that file. The file is the
only place where the borrower keeps it; with it the node can log in again
after a reboot without asking anybody.

Records may belong to another user than root: Kolla gives ``/etc/iscsi`` to
that of cinder-volume. This daemon has no right to write there
(CAP_DAC_OVERRIDE), so its commands do, as iscsiadm does: for these two verbs,
while the capability would be the daemon's for all it ever does.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from typing import Any, Iterator

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import process
from cinder_dmclone.privileged import scsi
from cinder_dmclone.sysfs import sessions

INITIATOR = pathlib.Path('/etc/iscsi/initiatorname.iscsi')
# Debian and Red Hat; upstream's default.
NODES = (pathlib.Path('/etc/iscsi/nodes'),
         pathlib.Path('/var/lib/iscsi/nodes'))

# Within how many seconds a call has to begin; and how long its caller waits,
# for the commands that it consists of.
_BEGUN = 10
_RECORD_SECONDS = 40
_SECONDS = 60

_PORTAL = re.compile(r'(\[[0-9a-fA-F:.]+\]|[0-9.]+):[0-9]{1,5}')
_CREDENTIAL = re.compile(r'[!-~]{1,255}')

# What we decide; all else is the operator's, in iscsid.conf. The
# replacement timeout is: with the default (120 s) an outage shorter than
# that only delays I/O, and no path fails.
_RECORD = {
    'node.startup': 'manual',
    'node.conn[0].startup': 'manual',
    'node.session.scan': 'auto',
    'node.session.nr_sessions': '1',
    'node.session.auth.authmethod': 'CHAP',
    # Two attempts: the default, 8 times 15 s, is longer than an attach. One is
    # lost if a target of the lender goes meanwhile (see lio.py), and iscsid
    # lets it time out (__conn_error_handle, initiator.c).
    'node.session.initial_login_retry_max': '2',
    'node.conn[0].timeo.login_timeout': '5',
    'node.conn[0].timeo.logout_timeout': '5',
    # Never give up reconnecting.
    'node.session.reopen_max': '0',
}
_USER = 'node.session.auth.username'
_PASSWORD = 'node.session.auth.password'
# No other may have made the draft: the directory need not be root's.
_REPLACE = 'umask 077; rm -f "$1"; set -C; cat >"$1"; exec mv -fT "$1" "$2"'
_MUTUAL = ('node.session.auth.username_in', 'node.session.auth.password_in')


@privileged.context.entrypoint
def initiator_name() -> str:
    """Name of this node's initiator; its file is for root only.

    In lower case: targets compare it like that (RFC 3722).

    :raises InitiatorUnusable: if there is none
    """
    try:
        text = INITIATOR.read_text()
    except OSError as error:
        raise exceptions.InitiatorUnusable(
            reason=f'{INITIATOR}: {error.strerror}') from None
    match = re.search(r'^\s*InitiatorName\s*=\s*(\S+)', text, re.MULTILINE)
    if not match:
        raise exceptions.InitiatorUnusable(
            reason=f'{INITIATOR} has no InitiatorName')
    return match[1].lower()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise exceptions.InitiatorUnusable(
            reason=f'node record {error.filename}: {error.strerror}'
            ) from error


@privileged.timely(_RECORD_SECONDS, _BEGUN)
@_explained()
def write_record(iqn: str, portal: str, user: str, password: str) -> None:
    """Make the node record of a target exist with these credentials.

    Durable when it returns.

    :raises CommandFailed, CommandTimeout: if it cannot be made
    :raises InitiatorUnusable: if it cannot be read
    """
    _check(iqn)
    if not _PORTAL.fullmatch(portal):
        raise ValueError(f'{portal} is not ip:port')
    if not (_CREDENTIAL.fullmatch(user) and _CREDENTIAL.fullmatch(password)):
        raise ValueError(f'The credentials for {iqn} cannot be written')
    wanted = {**_RECORD, _USER: user, _PASSWORD: password}
    host, _colon, port = portal.rpartition(':')
    directory = f'{host.strip("[]")},{port},1'
    files = _files(iqn)
    if [path.parent.name for path in files] == [directory]:
        present = _parse(files[0].read_text())
        if present == {**present, **wanted}:
            return
    if files:
        delete_record(iqn)
    process.run(['iscsiadm', '-m', 'node', '-T', iqn, '-p', f'{portal},1',
                 '-I', 'default', '-o', 'new'], timeout=10)
    files = _files(iqn)
    if len(files) != 1:
        raise exceptions.CommandFailed(
            command=f'iscsiadm -m node -T {iqn} -o new', code=0,
            stderr=f'{len(files)} node records found in '
                   + ', '.join(map(str, NODES)))
    values = _parse(files[0].read_text())
    values.update(wanted)
    for key in _MUTUAL:
        values.pop(key, None)
    _replace(files[0], ''.join(f'{key} = {value}\n'
                               for key, value in values.items()))


@privileged.timely(_RECORD_SECONDS, _BEGUN)
@_explained()
def delete_record(iqn: str) -> None:
    """Remove the node records of a target; none is fine.

    :raises CommandFailed, CommandTimeout: if that cannot be
    """
    _check(iqn)
    if _files(iqn):
        # iscsiadm also knows the links from its discovery directories, but
        # refuses while there is a session, and overlooks damaged files.
        try:
            process.run(['iscsiadm', '-m', 'node', '-T', iqn, '-o', 'delete'],
                        timeout=10)
        except exceptions.CommandFailed:
            pass
    left = [path for root in NODES for path in (
        *root.glob(iqn), *(root.parent / 'static').glob(f'{iqn},*'))]
    if left:
        process.run(['rm', '-rf', '--', *map(str, left)], timeout=10)


@privileged.timely(_SECONDS, _BEGUN, abroad=True)
def login(iqn: str, seconds: float) -> None:
    """Log in from the node record; a session that exists is fine.

    :raises CommandFailed: if the target is away or refuses
    :raises CommandTimeout: iscsiadm was killed; iscsid may still go on
    """
    _check(iqn)
    try:
        process.run(['iscsiadm', '-m', 'node', '-T', iqn, '--login'],
                    timeout=seconds)
    except exceptions.CommandFailed:
        if not sessions.find(iqn):
            raise


@privileged.timely(_SECONDS, _BEGUN, abroad=True)
def rescan(iqn: str, seconds: float) -> None:
    """Look for the target's LUN again; without a session there is none.

    :param seconds: how long that may take
    :raises CommandFailed, CommandTimeout: if iscsid cannot now
    """
    _check(iqn)
    session = sessions.find(iqn)
    if session:
        process.run(['iscsiadm', '-m', 'session', '-r', str(session.sid),
                     '--rescan'], timeout=seconds)


@privileged.timely(_SECONDS, _BEGUN, abroad=True)
def logout(iqn: str, seconds: float) -> None:
    """End every session with a target; none is fine.

    :raises CommandFailed, CommandTimeout: if iscsid cannot end it now
    """
    _check(iqn)
    for session in sessions.sessions():
        if session.iqn == iqn:
            process.run(['iscsiadm', '-m', 'session', '-r', str(session.sid),
                         '--logout'], timeout=seconds)


@privileged.timely(_SECONDS, _BEGUN, abroad=True)
def identity(iqn: str, devnum: str, seconds: float) -> dict[str, Any]:
    """Who the disk of this session says it is (``scsi.identity``).

    :raises SourceMismatch: if the session has another disk now
    """
    return scsi.identity(_disk(iqn, devnum).path, devnum, seconds)


@privileged.timely(_SECONDS, _BEGUN, abroad=True)
def set_running(iqn: str, devnum: str) -> None:
    """Let the kernel use the disk of this session again.

    :raises SourceMismatch: if the session has another disk now
    :raises CommandFailed: if the kernel refuses
    """
    disk = _disk(iqn, devnum)
    state = sessions.SYSFS / 'dev/block' / disk.devnum / 'device/state'
    # The kernel wants a whole line (store_state_field in scsi_sysfs.c); and a
    # process may be left behind.
    process.run(['tee', str(state)], timeout=10, input='running\n')


def _disk(iqn: str, devnum: str) -> sessions.Disk:
    _check(iqn)
    session = sessions.find(iqn)
    if not (session and session.disk and session.disk.devnum == devnum):
        raise exceptions.SourceMismatch(
            iqn=iqn, reason=f'block device {devnum} is not its disk any more')
    return session.disk


def _files(iqn: str) -> list[pathlib.Path]:
    """The files of a target's node records: portal directory / interface.

    Without a portal group number iscsiadm makes the portal a plain file.
    """
    found: list[pathlib.Path] = []
    for root in NODES:
        for path in (root / iqn).glob('*'):
            found.extend([path] if path.is_file() else path.glob('*'))
    return found


def _parse(text: str) -> dict[str, str]:
    values = {}
    for line in text.splitlines():
        key, equals, value = line.partition('=')
        if equals and not line.startswith('#'):
            values[key.strip()] = value.strip()
    return values


def _replace(path: pathlib.Path, text: str) -> None:
    """Replace a file whole, for root only, durably.

    The new file is made outside the record directories: iscsiadm reads
    every file there.
    """
    nodes = path.parents[2]
    draft = nodes.parent / f'.{path.parents[1].name}'
    process.run(['sh', '-ec', _REPLACE, 'sh', str(draft), str(path)],
                timeout=10, input=text)
    for made in (path, path.parent, path.parents[1], nodes):
        fd = os.open(made, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _check(iqn: str) -> None:
    if not sessions.is_ours(iqn):
        raise ValueError(f'{iqn} is not a target of this driver')
