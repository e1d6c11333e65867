# SPDX-License-Identifier: Apache-2.0
"""Names of everything the driver makes: LVs, dm devices, targets.

A name of ours is derived from the uuid of the data LV (``volume.name_id``),
and never from the volume's id alone: Cinder's generic migration exchanges ids
between rows, an LV's uuid is used once and never again.

The privileged daemon loads this module: it must not load Cinder itself.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import hmac
import re

from oslo_config import cfg

from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId

CONF = cfg.CONF

DM_PREFIX = 'dmclone-'
UUID_PREFIX = 'CINDER-DMCLONE-'
META_PREFIX = 'dmclone-meta-'
UNMANAGED_PREFIX = 'unmanaged-'
IQN_MARK = 'dmclone-'
# The capability of a pool that lists the addresses of its node.
ADDRESSES = 'dmclone_addresses'

# RFC 3720, 3.2.6, as far as rtslib takes it (normalize_wwn in its utils.py);
# LIO makes a directory of it.
_INITIATOR = re.compile(
    r'iqn\.[0-9]{4}-[01][0-9]\.(?=.*\.)[!-.0-^`-~]{1,211}|'
    r'naa\.[125c-f][0-9a-f]{15}|eui\.[0-9a-f]{16}', re.IGNORECASE)

_UUID = r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_DM_NAME = re.compile(
    rf'{DM_PREFIX}(?P<kind>front|loan|view|serve|io|clone|'
    rf'source|joint|hold|sluice|stop)-'
    # A front that this node made under any other name is one, too.
    rf'(?:(?P<place>.+)-)??(?P<lv>{_UUID})(?:-(?P<borrower>{_UUID}))?')


class Kind(enum.Enum):
    """What a dm device of ours is for."""

    FRONT = 'front'    # what a server opens
    LOAN = 'loan'      # read-only, exported to one borrower
    VIEW = 'view'      # read-only, for a backup, an upload, a migration
    SERVE = 'serve'    # read-write, exported in place
    IO = 'io'          # read-write, opened by this node's own services
    CLONE = 'clone'
    SOURCE = 'source'
    JOINT = 'joint'    # leads users from a lent LV to its copy on this node
    HOLD = 'hold'      # where the writes of a gated front wait
    SLUICE = 'sluice'  # its path: lets writes fail, or leads on
    STOP = 'stop'      # where the sluice lets them fail


CONSUMERS = (Kind.FRONT, Kind.LOAN, Kind.VIEW, Kind.SERVE, Kind.IO)
READERS = (Kind.LOAN, Kind.VIEW)
WRITERS = (Kind.FRONT, Kind.SERVE, Kind.IO)
# What a gated front is made of; each is built on the next.
GATE = (Kind.HOLD, Kind.SLUICE, Kind.STOP)


@dataclasses.dataclass(frozen=True)
class DeviceName:
    """A dm device's name, taken apart; ``place`` stands for the host.

    :ivar borrower: the LV that a loan is for, or what a view is read as: the
        id of the volume or of the snapshot
    """

    kind: Kind
    lv: LvUuid
    borrower: LvUuid | None = None
    place: str | None = None

    def __str__(self) -> str:
        parts = [self.kind.value, self.place, self.lv, self.borrower]
        return DM_PREFIX + '-'.join(part for part in parts if part)

    @property
    def path(self) -> str:
        return f'/dev/mapper/{self}'

    @classmethod
    def parse(cls, name: str) -> DeviceName | None:
        """Take a name apart; None if it is not one of ours."""
        match = _DM_NAME.fullmatch(name)
        if not match:
            return None
        borrower = match['borrower']
        return cls(Kind(match['kind']), LvUuid(match['lv']),
                   LvUuid(borrower) if borrower else None, match['place'])


def front(host: str, lv: LvUuid) -> DeviceName:
    """Name of a server's device; it differs between nodes on purpose.

    A server started on the wrong node then fails to open its disk instead
    of running on a stale copy. An attachment shows the path to whoever may
    use the volume, the host's name is not for them.
    """
    place = hashlib.sha256(host.encode()).hexdigest()[:8]
    return DeviceName(Kind.FRONT, lv, place=place)


def loan(lv: LvUuid, borrower: LvUuid) -> DeviceName:
    """Name of what a borrower reads an LV through."""
    return DeviceName(Kind.LOAN, lv, borrower)


def view(lv: LvUuid, read_as: str) -> DeviceName:
    """Name of what a volume or snapshot (by its id) is read through."""
    return DeviceName(Kind.VIEW, lv, LvUuid(read_as))


def serve(lv: LvUuid) -> DeviceName:
    """Name of what servers elsewhere have a volume through, over iSCSI."""
    return DeviceName(Kind.SERVE, lv)


def local_io(lv: LvUuid) -> DeviceName:
    """Name of what this node's own service copies to a volume through."""
    return DeviceName(Kind.IO, lv)


def clone(lv: LvUuid) -> DeviceName:
    """Name of the dm-clone of an LV that hydrates."""
    return DeviceName(Kind.CLONE, lv)


def source(lv: LvUuid) -> DeviceName:
    """Name of what a clone reads its lender through."""
    return DeviceName(Kind.SOURCE, lv)


def joint(lv: LvUuid) -> DeviceName:
    """Name of what leads users from a lent LV to its copy on this node."""
    return DeviceName(Kind.JOINT, lv)


def hold(lv: LvUuid) -> DeviceName:
    """Name of where writes to a gated front wait."""
    return DeviceName(Kind.HOLD, lv)


def sluice(lv: LvUuid) -> DeviceName:
    """Name of what lets these writes on, or not."""
    return DeviceName(Kind.SLUICE, lv)


def stop(lv: LvUuid) -> DeviceName:
    """Name of what these writes would fail at while they wait."""
    return DeviceName(Kind.STOP, lv)


def data_lv(lv: LvUuid) -> str:
    """Name of the data LV with this uuid, by ``volume_name_template``."""
    return CONF.volume_name_template % lv


def meta_lv(lv: LvUuid) -> str:
    """Name of the LV with the dm-clone metadata of data LV ``lv``."""
    return META_PREFIX + lv


def unmanaged_lv(volume: VolumeId) -> str:
    """Name of the LV that was a volume: none that is ours."""
    return UNMANAGED_PREFIX + volume


def lv_uuid(lv_name: str) -> LvUuid | None:
    """The uuid in a data or metadata LV's name, None for foreign LVs."""
    if lv_name.startswith(META_PREFIX):
        return LvUuid(lv_name[len(META_PREFIX):])
    before, _, after = CONF.volume_name_template.partition('%s')
    match = re.fullmatch(
        re.escape(before) + f'({_UUID})' + re.escape(after), lv_name)
    return LvUuid(match[1]) if match else None


def loan_iqn(prefix: str, lv: LvUuid, borrower: LvUuid,
             generation: int) -> str:
    """IQN under which ``lv`` is lent to ``borrower``.

    Unique per attempt: an initiator that still knows an earlier target can
    never end up on another volume.
    """
    digest = hashlib.sha256(f'{lv}|{borrower}|{generation}'.encode())
    return f'{prefix}{IQN_MARK}{digest.hexdigest()[:32]}'


def view_iqn(prefix: str, lv: LvUuid, read_as: str) -> str:
    """IQN under which ``lv`` is read as a volume or snapshot."""
    digest = hashlib.sha256(f'{lv}|{read_as}'.encode())
    return f'{prefix}{IQN_MARK}{digest.hexdigest()[:32]}'


def serve_iqn(prefix: str, lv: LvUuid) -> str:
    """IQN under which ``lv`` is served in place."""
    digest = hashlib.sha256(lv.encode())
    return f'{prefix}{IQN_MARK}{digest.hexdigest()[:32]}'


def is_initiator(name: object) -> bool:
    """Whether this can be an iSCSI initiator's name."""
    return isinstance(name, str) and bool(_INITIATOR.fullmatch(name))


def chap_user(iqn: str) -> str:
    """CHAP name of a target: the last part of its IQN.

    It begins with a letter. LIO takes "0b" at the start of a name for the
    mark of Base64 and drops it (``extract_param`` in
    drivers/target/iscsi/iscsi_target_nego.c), and refuses the rest.
    """
    return iqn[iqn.rindex(IQN_MARK):]


def chap_secret(key: bytes, iqn: str, initiator: str = '') -> str:
    """CHAP password of a target: derived, so that it need not be stored.

    :param key: the exporting node's secret key
    :param initiator: whose it is, if the target admits several
    """
    text = f'{iqn} {initiator}'.rstrip()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:32]
