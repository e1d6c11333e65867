# SPDX-License-Identifier: Apache-2.0
"""Moves a volume from a machine to itself, without a control plane.

A program that runs in a machine, as root and with Cinder's Python. Each line
that it reads is a step of a relocation, for which it calls the same
functions of the driver as a service does, in the same order; the machine is
both lender and borrower. It says the name of each step that is done; one that
fails ends it::

    stacks ADDRESS VOLUME X Y MIB
"""
from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

from oslo_config import cfg
from oslo_privsep import priv_context

from cinder_dmclone import names, privileged
from cinder_dmclone.host import lvm
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.iscsi import initiator, targets
from cinder_dmclone.location import LvUuid, NodeName, VolumeId
from cinder_dmclone.ports import Host
from cinder_dmclone.settings import Rates
from cinder_dmclone.settings import Settings
from cinder_dmclone.stack import (clones, consumers, exports, inspect,
                                  lv_tags, teardown, write_gate)
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.units import Bytes

KEY = pathlib.Path('/var/lib/cinder/dmclone.key')
# As Cinder has it (cinder/db/api.py), whose import takes a machine a minute.
cfg.CONF.register_opt(cfg.StrOpt('volume_name_template',
                                 default='volume-%s'))


def host(address: str) -> Host:
    """This machine as the backend "dmclone" has it by default.

    :param address: of its targets
    """
    group = lvm.VolumeGroup('cinder-volumes')
    return Host(
        settings=Settings(
            node=NodeName('node1@dmclone'), pool='dmclone',
            target_prefix='iqn.2010-10.org.openstack:',
            portal=f'{address}:3260', least_region=Bytes(4 << 10),
            hydration_threshold=Bytes(16 << 20),
            hydration_batch=Bytes(4 << 20),
            rates=lambda: Rates(Bytes(0), Bytes(0)), budget=60, max_copies=3,
            serves_the_full=False, reserved_percentage=0,
            key=KEY.read_bytes()),
        group=group, meta_group=group, dm=device.DeviceMapper(),
        targets=targets.Targets(address, 3260),
        initiator=initiator.Initiator(),
        erase=lambda path, size, goes_on: None)


class Move:
    """A volume on its way from one LV to another."""

    def __init__(self, found: Host, volume: VolumeId, old: LvUuid,
                 new: LvUuid, mib: int) -> None:
        self.host = found
        self._volume = volume
        self._old = old
        self._new = new
        self._size = Bytes(mib << 20)
        self._own = lv_tags.OwnTag(1, volume)
        self._copy = lv_tags.CopyTag(2, volume)
        self._loan = lv_tags.LoanTag(
            2, volume, self._node, new, self.host.group.report().uuid,
            self.host.initiator.name(), self._size)

    @property
    def _node(self) -> NodeName:
        return self.host.settings.node

    @property
    def _front(self) -> names.DeviceName:
        return names.front(self.host.settings.host, self._new)

    def stack(self, lv: LvUuid) -> Stack:
        """What there is of an LV."""
        return inspect.refresh(self.host, lv)

    # The steps

    def create(self) -> None:
        """The volume, and a server's device on it."""
        self.host.targets.load()
        self.host.group.create(names.data_lv(self._old), self._size,
                               [lv_tags.print_tag(self._own)])
        consumers.consume(self.host, self.stack(self._old), names.front(
            self.host.settings.host, self._old))

    def lend(self) -> None:
        """Mark the LV lent, and export it."""
        self.host.group.retag(names.data_lv(self._old),
                              add=[lv_tags.print_tag(self._loan)])
        self.host.group.flush()
        exports.export_loan(self.host, self.stack(self._old), self._loan)

    def borrow(self) -> None:
        """Make the copy; its front is gated, nothing hydrates."""
        lent = self.stack(self._old)
        iqn = exports.loan_iqn(self.host, lent, self._loan)
        settings = self.host.settings
        assert lent.data is not None
        found = initiator.Source(
            iqn, settings.portal, self._old, lent.data.size,
            self.host.group.report().block_size,
            *settings.credentials(iqn))
        source = lv_tags.SourceTag(
            self._node, self._old, iqn, found.portal, found.size,
            found.block_size)
        clones.create(self.host, self._new, found.size, self._copy, source)
        clones.build(self.host, self._new, found, True)
        write_gate.prepare(self.host, self.stack(self._new))
        write_gate.close_gate(self.host, self.stack(self._new), self._front)

    def seal(self) -> None:
        """Hold back the old front's writes, and make the LV durable."""
        front = names.front(self.host.settings.host, self._old)
        stack = write_gate.prepare(self.host, self.stack(self._old))
        write_gate.close_gate(self.host, stack, front)
        consumers.flush(self.host, stack)

    def adopt(self) -> None:
        """Become the volume: the copy's writes go on."""
        stack = self.stack(self._new)
        self.host.dm.drop_cache(*(name.path for name in stack.of_kind(
            names.Kind.FRONT, names.Kind.CLONE)))
        write_gate.release(self.host, stack)
        self.host.group.retag(
            names.data_lv(self._new),
            add=[lv_tags.print_tag(lv_tags.OwnTag(2, self._volume))],
            remove=[lv_tags.print_tag(self._copy)])
        self.host.group.flush()
        write_gate.open_gate(self.host, self.stack(self._new))

    def fence(self) -> None:
        """Cut the old front off."""
        stack = self.stack(self._old)
        write_gate.fence(self.host, stack, names.front(
            self.host.settings.host, self._old))

    def hydrate(self) -> None:
        """Let the rest be copied."""
        clones.hydrate(self.host, self.stack(self._new))

    def complete(self) -> None:
        """Fail if the copy is not whole."""
        if not clones.is_complete(self.host, self.stack(self._new)):
            raise SystemExit('stacks: the copy is not complete')

    def swap(self) -> None:
        """Lead the front to the data LV, and clear up."""
        clones.swap(self.host, self.stack(self._new))
        teardown.dismantle(self.host, self.stack(self._new))

    def release(self) -> None:
        """Remove the old copy."""
        teardown.teardown(self.host, self.stack(self._old))

    def remove(self) -> None:
        """Remove what there is of the volume."""
        for lv in (self._new, self._old):
            stack = self.stack(lv)
            if stack.data:
                write_gate.give_up(self.host, stack)
                teardown.teardown(self.host, stack)


def main() -> None:
    """See above."""
    address, volume, old, new, mib = sys.argv[1:]
    cfg.CONF([], project='cinder')
    # What a service starts by rootwrap.
    privileged.context.start(priv_context.Method.FORK)
    move = Move(host(address), VolumeId(volume), LvUuid(old), LvUuid(new),
                int(mib))
    for line in sys.stdin:
        step = line.strip()
        work: Callable[[], None] = getattr(move, step)
        work()
        print(step, flush=True)


if __name__ == '__main__':
    main()
