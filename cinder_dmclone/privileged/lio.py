# SPDX-License-Identifier: Apache-2.0
"""iSCSI targets of the kernel (LIO), as root.

Changes go through rtslib, reads go straight to configfs: they need no lock,
do not fail on half-made objects and work while a change is stuck.

What rtslib does that matters here:

* Its cache of backstore numbers lives as long as the process, so it goes
  stale when cinder-rtstool or targetcli change something, and two processes
  may choose the same. Passing the number bypasses it (and its lock file,
  which a daemon with umask 0 would leave world-writable).
* Deleting a storage object walks through the targets of everybody; one that
  vanishes meanwhile raises OSError. Such a deletion is tried again.
* Nothing is ever saved: target.service would restore the names before the
  devices exist.

And what the kernel does: all targets of a portal share a thread, in which a
login begins. It is interrupted whenever one of them goes
(iscsit_reset_np_thread, drivers/target/iscsi/iscsi_target.c), and who has just
connected loses some seconds. So a removal waits for logins that are to come.

Only targets with our mark and backstores named after them are touched.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import threading
import time
from typing import Any, Iterator

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone import privileged
from cinder_dmclone.privileged import configfs
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import process
from cinder_dmclone.sysfs import sessions

CONFIGFS = pathlib.Path('/sys/kernel/config/target')
DB_ROOT = pathlib.Path('/etc/target')
MODULES = ('target_core_mod', 'target_core_iblock', 'iscsi_target_mod')

# A change that waits for a stuck backend command holds configfs' own lock:
# all later ones would wait in the kernel, unkillably. They wait here, and
# give up.
LOCK_SECONDS = 20
CHANGE_SECONDS = 30
# A target that was made longer ago than this keeps no other from going; nor
# do several, one after the other.
LOGIN_SECONDS = 5
_POLL_SECONDS = 0.05

_LOCK = threading.Lock()
# Targets that nobody has logged in to yet, and when each was made.
_expected: dict[str, float] = {}
_DEVICE = re.compile(
    rf'/dev/mapper/{names.DM_PREFIX}(loan|view|serve)-[0-9a-f-]+')
_SERIAL = re.compile(r'[0-9a-f-]{36}')

_FIRST_NUMBER = 1 << 20

# The serial and the product name stay fixed while a LUN is mapped. A discard
# from the other side must never reach the device.
_BACKSTORE_ATTRIBUTES = {
    'emulate_model_alias': '1', 'emulate_tpu': '0', 'emulate_tpws': '0'}
_TPG_ATTRIBUTES = {
    'authentication': '1', 'generate_node_acls': '0',
    'demo_mode_write_protect': '1',
    # Who asks for targets is told of those that admit it.
    'demo_mode_discovery': '0'}


def backstore_name(iqn: str) -> str:
    """Name of the storage object behind a target of ours.

    It starts with our mark, because the SCSI product name is made of its
    first 16 characters and udev rules match that; the IQN can be made out
    of it, so that a storage object without a target is found.
    """
    cut = iqn.rindex(names.IQN_MARK)
    return f'{iqn[cut:]}@{iqn[:cut]}'


def _iqn_of(backstore: str) -> str | None:
    mark, at, prefix = backstore.partition('@')
    iqn = prefix + mark
    return iqn if at and sessions.is_ours(iqn) else None


@privileged.timely(CHANGE_SECONDS, CHANGE_SECONDS - LOCK_SECONDS)
def load() -> None:
    """Make the kernel ready for targets: modules, configfs, directories.

    :raises TargetUnusable: if the kernel or rtslib cannot do it
    """
    # The kernel keeps reservations there, but does not make it.
    for path in (DB_ROOT, DB_ROOT / 'pr'):
        path.mkdir(mode=0o755, exist_ok=True)
    for module in MODULES:
        process.run(['modprobe', module], timeout=10)
    configfs.mount(CONFIGFS)
    with _exclusive(), _explained('iscsi'):
        # Makes the directory 'iscsi', which appears at the first use only.
        _rtslib().FabricModule('iscsi')._check_self()


@privileged.context.entrypoint
def list_exports(part: str = '', iqns: list[str] | None = None
                 ) -> list[dict[str, Any]]:
    """Exports of ours, also half-made ones.

    :param part: only exports of devices with this in their paths
    :param iqns: and of these, in any case
    :returns: one dict per IQN with the fields of ``targets.ExportState``
    """
    found = {}
    for path in _glob(CONFIGFS, 'core/iblock_*/*@*'):
        iqn = _iqn_of(path.name)
        if iqn and (not part or iqn in (iqns or ())
                    or part in _read(path / 'udev_path')):
            found[iqn] = _state(iqn, path)
    for path in _glob(CONFIGFS, 'iscsi/iqn.*'):
        if (path.name not in found and (not part or path.name in (iqns or ()))
                and sessions.is_ours(path.name)):
            found[path.name] = _state(path.name, None)
    return list(found.values())


def _state(iqn: str, backstore: pathlib.Path | None) -> dict[str, Any]:
    state: dict[str, Any] = {
        'iqn': iqn, 'device': '', 'serial': '',
        'initiators': [], 'enabled': False, 'sessions': []}
    if backstore:
        state['device'] = _read(backstore / 'udev_path')
        state['serial'] = _serial(backstore)
    tpg = CONFIGFS / 'iscsi' / iqn / 'tpgt_1'
    state['enabled'] = _read(tpg / 'enable') == '1'
    for acl in _glob(tpg, 'acls/*'):
        state['initiators'].append(acl.name)
        if _read(acl / 'info').startswith('InitiatorName'):
            state['sessions'].append(acl.name)
    return state


@privileged.timely(CHANGE_SECONDS, CHANGE_SECONDS - LOCK_SECONDS)
def ensure(iqn: str, device: str, serial: str, readonly: bool,
           grants: list[tuple[str, str, str]], ip: str, port: int) -> None:
    """Make configfs show exactly this export, and enable it last.

    What is right already is not touched, so that sessions live on. A wrong
    backstore or LUN is never changed under a session: the target goes
    first.

    :param grants: (initiator, user, password) of all that may log in
    :raises TargetUnusable: with the reason; what was made until then stays
        disabled and the next call goes on
    """
    _check_iqn(iqn)
    if not _DEVICE.fullmatch(device) or not _SERIAL.fullmatch(serial):
        raise ValueError(f'{device} with serial {serial} is not exported')
    for initiator, _user, _password in grants:
        if not names.is_initiator(initiator):
            raise ValueError(f'{initiator!r} is no initiator')
    with _exclusive(), _explained(iqn):
        # Before anything is taken away.
        nodes.ready(device)
        try:
            _build(iqn, device, serial, readonly, grants, ip, port)
        except _rtslib().RTSLibBrokenLink:
            # Half-made or half-removed in a way that rtslib cannot walk
            # through, only remove.
            _remove(iqn)
            _build(iqn, device, serial, readonly, grants, ip, port)


def _build(iqn: str, device: str, serial: str, readonly: bool,
           grants: list[tuple[str, str, str]], ip: str, port: int) -> None:
    storage = _backstores(iqn)
    if not (len(storage) == 1
            and _backstore_is_right(storage[0], device, serial, readonly)):
        _remove(iqn)
        storage = [_make_backstore(iqn, device, serial, readonly)]
    lib = _rtslib()
    tpg = lib.TPG(_target(iqn), 1)
    for name, value in _TPG_ATTRIBUTES.items():
        if tpg.get_attribute(name) != value:
            tpg.set_attribute(name, value)
    _ensure_lun(tpg, storage[0])
    _ensure_acls(tpg, grants, readonly)
    _ensure_portal(tpg, ip, port)
    if not tpg.enable:
        tpg.enable = True
        _expected[iqn] = time.monotonic()


@privileged.timely(CHANGE_SECONDS,
                   CHANGE_SECONDS - LOCK_SECONDS - LOGIN_SECONDS)
def remove(iqn: str) -> None:
    """Remove an export and all its parts; sessions end first.

    An export that is not there is fine. Waits up to ``LOGIN_SECONDS`` for
    logins that are to come to others.
    """
    _check_iqn(iqn)
    if (CONFIGFS / 'iscsi' / iqn).is_dir():
        _let_others_log_in(iqn)
    with _exclusive(), _explained(iqn):
        _remove(iqn)


@privileged.timely(CHANGE_SECONDS, CHANGE_SECONDS - LOCK_SECONDS)
def revoke(iqn: str, initiator: str) -> None:
    """Take an initiator's access away; its session ends."""
    _check_iqn(iqn)
    with _exclusive(), _explained(iqn):
        lib = _rtslib()
        if (CONFIGFS / 'iscsi' / iqn / 'tpgt_1').is_dir():
            for acl in lib.TPG(_target(iqn), 1).node_acls:
                if acl.node_wwn == initiator.lower():
                    acl.delete()


def _let_others_log_in(iqn: str) -> None:
    _expected.pop(iqn, None)
    deadline = time.monotonic() + LOGIN_SECONDS
    while _login_is_due() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _login_is_due() -> bool:
    for iqn, made in list(_expected.items()):
        if (time.monotonic() > made + LOGIN_SECONDS
                or _state(iqn, None)['sessions']):
            _expected.pop(iqn, None)
    return bool(_expected)


def _backstores(iqn: str) -> list[pathlib.Path]:
    return _glob(CONFIGFS, f'core/iblock_*/{backstore_name(iqn)}')


def _backstore_is_right(path: pathlib.Path, device: str, serial: str,
                        readonly: bool) -> bool:
    info = _read(path / 'info')
    devnum = re.search(r'Major: (\d+) Minor: (\d+)', info)
    if _read(path / 'enable') != '1' or not devnum:
        return False
    # The name may lead elsewhere by now: what counts is the device held.
    return (
        _devnum(device) == (int(devnum[1]), int(devnum[2]))
        and _read(path / 'udev_path') == device
        and f'readonly: {int(readonly)}' in info
        and _serial(path) == serial
        and all(_read(path / 'attrib' / name) == value
                for name, value in _BACKSTORE_ATTRIBUTES.items()))


def _devnum(device: str) -> tuple[int, int]:
    node = os.stat(device).st_rdev
    return os.major(node), os.minor(node)


def _make_backstore(iqn: str, device: str, serial: str,
                    readonly: bool) -> pathlib.Path:
    storage = _rtslib().BlockStorageObject(
        backstore_name(iqn), dev=device, wwn=serial, readonly=readonly,
        index=_free_number(iqn))
    for name, value in _BACKSTORE_ATTRIBUTES.items():
        storage.set_attribute(name, value)
    return pathlib.Path(storage.path)


def _free_number(iqn: str) -> int:
    """A number for the directory ('HBA') that holds the storage object.

    By the IQN, so that one left empty by a crash is used again, and above
    those that rtslib gives out, so that no other process takes it meanwhile.
    """
    number = _number(iqn)
    while True:
        path = CONFIGFS / f'core/iblock_{number}'
        with contextlib.suppress(OSError):
            path.rmdir()
        if not path.exists():
            return number
        number += 1


def _number(iqn: str) -> int:
    return _FIRST_NUMBER + int(iqn.rpartition('-')[2][:7], 16)


def _ensure_lun(tpg: Any, storage: pathlib.Path) -> None:
    """Exactly one LUN, number 0, on this storage object."""
    lib = _rtslib()
    right = False
    for path in _glob(pathlib.Path(tpg.path), 'lun/lun_*'):
        if path.name == 'lun_0' and _link(path) == storage:
            right = True
            continue
        tpg.enable = False
        lib.LUN(tpg, int(path.name.removeprefix('lun_'))).delete()
    if not right:
        tpg.enable = False
        lib.LUN(tpg, 0, _storage_object(storage))


def _ensure_acls(tpg: Any, grants: list[tuple[str, str, str]],
                 readonly: bool) -> None:
    wanted = {initiator.lower() for initiator, _user, _password in grants}
    for acl in tpg.node_acls:
        if acl.node_wwn not in wanted:
            acl.delete()
    lun = pathlib.Path(tpg.path) / 'lun/lun_0'
    for initiator, user, password in grants:
        acl = tpg.node_acl(initiator)
        mapped = _glob(pathlib.Path(acl.path), 'lun_*')
        if not ([entry.name for entry in mapped] == ['lun_0']
                and _link(mapped[0]) == lun
                and _read(mapped[0] / 'write_protect')
                == str(int(readonly))):
            for entry in acl.mapped_luns:
                entry.delete()
            acl.mapped_lun(0, 0, write_protect=readonly)
        # Without both no login is possible, so nobody ever logs in and
        # finds no LUN.
        if (acl.chap_userid, acl.chap_password) != (user, password):
            acl.chap_userid = user
            acl.chap_password = password


def _ensure_portal(tpg: Any, ip: str, port: int) -> None:
    host = f'[{ip}]' if ':' in ip else ip
    for portal in tpg.network_portals:
        if (portal.ip_address, portal.port) != (host, port):
            portal.delete()
    tpg.network_portal(host, port)


def _remove(iqn: str) -> None:
    if (CONFIGFS / 'iscsi' / iqn).is_dir():
        _target(iqn).delete()
    for storage in _backstores(iqn):
        for attempt in range(5):
            try:
                _storage_object(storage).delete()
                break
            except FileNotFoundError:
                time.sleep(0.1 * attempt)
    with contextlib.suppress(OSError):
        # Left empty by a crash.
        (CONFIGFS / f'core/iblock_{_number(iqn)}').rmdir()
    if _backstores(iqn):
        raise exceptions.TargetUnusable(
            reason=f'the backstore of {iqn} cannot be removed')


def _target(iqn: str) -> Any:
    lib = _rtslib()
    return lib.Target(lib.FabricModule('iscsi'), iqn)


def _storage_object(path: pathlib.Path) -> Any:
    # Before 2.2 rtslib splits the path as text.
    return _rtslib().tcm.StorageObject.so_from_path(str(path))


def _serial(backstore: pathlib.Path) -> str:
    return _read(backstore / 'wwn/vpd_unit_serial').rpartition(':')[2].strip()


def _link(path: pathlib.Path) -> pathlib.Path | None:
    for entry in _glob(path, '*'):
        if entry.is_symlink():
            return entry.resolve()
    return None


def _glob(path: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    try:
        return sorted(path.glob(pattern))
    except OSError:
        return []


def _read(path: pathlib.Path) -> str:
    """A file of configfs; '' if it is not there (any more)."""
    try:
        return path.read_text().strip()
    except OSError:
        return ''


def _check_iqn(iqn: str) -> None:
    if not sessions.is_ours(iqn):
        raise ValueError(f'{iqn} is not a target of this driver')


def _rtslib() -> Any:
    try:
        import rtslib_fb
    except ImportError as error:
        raise exceptions.TargetUnusable(
            reason=f'the Python package rtslib-fb is needed: {error}'
        ) from None
    return rtslib_fb


@contextlib.contextmanager
def _exclusive() -> Iterator[None]:
    if not _LOCK.acquire(timeout=LOCK_SECONDS):
        raise exceptions.TargetUnusable(
            reason=f'another change has been running for more than '
                   f'{LOCK_SECONDS} seconds')
    try:
        yield
    finally:
        _LOCK.release()


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what rtslib raises into something that can cross privsep."""
    try:
        yield
    except exceptions.DMCloneException:
        raise
    except Exception as error:
        # Neither rtslib nor the kernel quotes a written value.
        raise exceptions.TargetUnusable(
            reason=f'{what}: {type(error).__name__}: {error}') from None
