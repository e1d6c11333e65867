# SPDX-License-Identifier: Apache-2.0
"""Who asks for what a story has."""

from __future__ import annotations

import random
import typing

from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.stack import lv_tags
from tests.simulation import backups
from tests.simulation import births
from tests.simulation import cloud as cloud_module
from tests.simulation import control
from tests.simulation import disasters
from tests.simulation import exchange
from tests.simulation import images
from tests.simulation import nova as nova_module
from tests.simulation import outside
from tests.simulation import pools
from tests.simulation import recoveries
from tests.simulation import reverts
from tests.simulation import scheduler
from tests.simulation import snap_moves
from tests.simulation import snaps
from tests.simulation import stories
from tests.simulation import truth as truth_module

LATE_SECONDS = 200.0
MEETING_SECONDS = 1000.0
PART_SECONDS = 400.0


class Teller:
    """Carries stories out."""

    def __init__(self, cloud: cloud_module.Cloud, api: control.Api,
                 truth: truth_module.Truth,
                 novas: typing.Sequence[nova_module.Nova],
                 choices: random.Random) -> None:
        self.cloud = cloud
        self.api = api
        self.truth = truth
        self.first, self.second = novas
        self.choices = choices
        self.outside = outside.Outside()
        self._meeting: scheduler.Future | None = None
        self.unmanaging = False
        # Faults have stopped: those of stories, too.
        self.calmed = False
        # LVs that nobody knows of, and their nodes.
        self.strays: list[tuple[cloud_module.Node, LvUuid]] = []

    def tell(self, steps: typing.Sequence[stories.Step]) -> None:
        for what, *words in steps:
            self.cloud.note(f'{what} {" ".join(words)}')
            try:
                getattr(self, f'_{what}')(*words)
                self.cloud.note(f'{what}: done')
            except control.Refused as error:
                self.cloud.note(f'{what}: {error}')

    def _place(self, host: str) -> outside.Host:
        return (self.outside if host == self.outside.host
                else self._node(host))

    def _node(self, host: str) -> cloud_module.Node:
        return next(node for node in self.cloud.nodes.values()
                    if node.host == host)

    # -- steps --------------------------------------------------------------

    def _attach(self, host: str) -> None:
        self.first.attach(self._place(host))

    def _detach(self) -> None:
        self.first.detach()

    def _live(self, host: str, ending: str) -> None:
        self.first.live(self._node(host), ending)

    def _fill(self) -> None:
        self.first.fill()

    def _trim(self) -> None:
        self.first.trim()

    def _trickle(self) -> None:
        self.first.trickle()

    def _attach2(self, host: str) -> None:
        self.second.attach(self._place(host))

    def _detach2(self) -> None:
        self.second.detach()

    def _live2(self, host: str, ending: str) -> None:
        self.second.live(self._node(host), ending)

    def _see(self) -> None:
        """Each server sees what both have written."""
        both = (self.first, self.second)
        for part, nova in enumerate(both):
            nova.write_some(range(part, len(self.truth.regions), 2))
        for nova in both:
            nova.read_all()

    def _drop(self) -> None:
        """A user deletes an attachment, whatever goes on."""
        found = self.api.tables.attachments_of(self.api.volume)
        if found:
            self.truth.meddled = True
            gone = self.choices.choice(found)['id']
            self.api.disconnect(gone)
            shared = self.api.tables.volumes[self.api.volume]['multiattach']
            # With one server alone, nobody gets what it has open.
            for nova in (self.first, self.second) if shared else ():
                nova.disown(gone)

    def _want(self) -> None:
        """A server that wanted the volume is not made after all."""
        wanted = self.api.reserve('another')
        self.cloud.scheduler.sleep(self.choices.choice((0.0, 0.1, 1.0)))
        self.api.disconnect(wanted)

    def _again(self) -> None:
        """A request for a connection is repeated by somebody."""
        found = self.api.tables.attachments_of(self.api.volume)
        if found:
            again = self.choices.choice(found)['id']
            if again in self.api.asked:
                self.api.connect(again, self.api.asked[again])

    def _flush(self) -> None:
        self.first.flush()

    def _cut(self) -> None:
        """What the volume is now is kept for others."""
        self.api.cut()

    def _extend(self) -> None:
        self.api.extend()

    def _migrate(self, host: str) -> None:
        self.api.move(self._node(host))

    def _exchange(self, host: str) -> None:
        exchange.migrate(self.api, self.truth, self._node(host))

    def _drain(self) -> None:
        recoveries.drain(self.api)

    def _image(self) -> None:
        images.fill(self.api, self.truth)

    def _delete(self) -> None:
        self.api.delete()

    def _part(self, one: str, other: str) -> None:
        """Let two nodes be without each other for a while."""
        def heal() -> None:
            self.cloud.scheduler.sleep(PART_SECONDS)
            self.cloud.heal()
        self.cloud.partition(self._node(one), self._node(other))
        self.cloud.scheduler.spawn('heal', heal)

    def _unmanage(self) -> None:
        self.unmanaging = True
        self.api.unmanage()

    def _purge(self) -> None:
        self.api.purge()

    def _snap(self) -> None:
        snaps.take(self.api, self.truth)

    def _unsnap(self) -> None:
        if self.api.snapshots:
            snaps.drop(self.api, self.choices.choice(self.api.snapshots))

    def _mvsnap(self, host: str) -> None:
        for taken in self.api.snapshots[:1]:
            snap_moves.move(self.api, taken, self._node(host).name)

    def _mvlast(self, host: str) -> None:
        for taken in self.api.snapshots[-1:]:
            snap_moves.move(self.api, taken, self._node(host).name)

    def _stay(self) -> None:
        for taken in self.api.snapshots[:1]:
            snap_moves.stay(self.api, taken)

    def _revert(self) -> None:
        reverts.revert(self.api, self.truth)

    def _forget(self) -> None:
        """The database alone forgets that a server has the volume."""
        self.truth.meddled = True
        self.api.forget()

    def _backup(self, host: str, ending: str = 'done') -> None:
        backups.of_volume(self.api, self.truth, self._place(host), ending)

    def _backup_snap(self, host: str) -> None:
        if self.api.snapshots:
            backups.of_snapshot(self.api, self.truth, self.choices.choice(
                self.api.snapshots), self._place(host))

    def _birth(self, host: str) -> None:
        """Another volume begins as what this one is."""
        births.bear(self.cloud, self.truth, self._node(host))

    def _birth_snap(self, host: str) -> None:
        """It begins as the first snapshot."""
        for taken in self.api.snapshots[:1]:
            births.bear(self.cloud, self.truth, self._node(host), taken)

    def _lose(self, host: str) -> None:
        """A node goes, and its disks with it."""
        if not self.calmed:
            disasters.reinstall(self._node(host), self.truth)

    def _halt(self, host: str) -> None:
        """Its service dies, and nobody starts it."""
        if not self.calmed:
            self._node(host).kill()

    def _give_up(self) -> None:
        recoveries.give_up(self.api, self.truth)

    def _stray(self, host: str) -> None:
        node = self._node(host)
        self.strays.append((node, recoveries.make_stray(node)))

    def _forget_all(self, host: str) -> None:
        """An operator forgets all LVs of a node that can be forgotten."""
        self._do_all(messages.Forget, host)

    def _do_all(self, deed: recoveries.Deed, host: str) -> None:
        node = self._node(host)
        for name in list(node.group.volumes):
            lv = names.lv_uuid(name)
            if lv and name == names.data_lv(lv):
                self._do(deed, node, lv)

    def _do(self, deed: recoveries.Deed, node: cloud_module.Node,
            lv: LvUuid) -> None:
        try:
            recoveries.do(deed, self.api, node, lv)
        except (control.Refused, recoveries.NoAnswer) as error:
            self.cloud.note(f'no {deed.__name__} of {lv}: {error!r}')

    def _strand(self, host: str) -> None:
        recoveries.strand(self.api, self._node(host))

    def _release_all(self, host: str) -> None:
        """An operator releases all LVs of a node that can be released."""
        self._do_all(messages.Release, host)

    def _forget_strays(self) -> None:
        for node, lv in (*self.strays, *self._halves()):
            for _ in range(recoveries.TRIES):
                if names.data_lv(lv) not in node.group.volumes:
                    break
                self._do(messages.Forget, node, lv)
                self.cloud.scheduler.sleep(recoveries.PAUSE)

    def _halves(self) -> typing.Iterator[tuple[cloud_module.Node, LvUuid]]:
        """Copies whose metadata in another group no power cut left.

        They never were the volume, which only an operator can tell.
        """
        for node in self.cloud.nodes.values():
            for name, lv in list(node.group.volumes.items()):
                uuid = names.lv_uuid(name)
                if (uuid and name == names.data_lv(uuid)
                        and node.meta_group is not node.group
                        and lv_tags.Tags.parse(lv.tags).copy
                        and names.meta_lv(uuid) not in node.meta_group.volumes
                        and Location(node.name, uuid) not in self.truth.left):
                    yield node, uuid

    def _recover(self) -> None:
        recoveries.recover(self.api, self.truth)

    def _wait(self, seconds: str) -> None:
        self.cloud.scheduler.sleep(float(seconds))

    def _meet(self) -> None:
        """Go on when the other line is here too."""
        if self._meeting:
            self._meeting.set(None)
        else:
            self._meeting = scheduler.Future(self.cloud.scheduler)
            self._meeting.wait(MEETING_SECONDS)

    def _linger(self) -> None:
        """Let the others go on for a while."""
        for _ in range(self.choices.choice((0, 0, 50, 300))):
            self.cloud.scheduler.point()

    def _kill(self, host: str) -> None:
        node = self._node(host)
        node.kill()
        self.cloud.scheduler.sleep(5.0)
        node.start()

    def _power(self, host: str) -> None:
        node = self._node(host)
        if node.up:
            node.lose_power()
        self.cloud.scheduler.sleep(5.0)
        node.start()

    # -- when faults have stopped -------------------------------------------

    def release(self) -> None:
        """An operator ends loans of the volume that would never end."""
        for _ in range(recoveries.TRIES):
            if not disasters.lends_to_lost(self.cloud, self.truth):
                break
            row = self.cloud.row(self.api.volume)
            self._do(messages.Release, self.cloud.nodes[row.node], row.lv)
            self.cloud.scheduler.sleep(recoveries.PAUSE)

    def calm(self) -> None:
        """One server keeps the volume; what others left is cleaned up."""
        self.calmed = True
        self._forget_strays()
        # What is late arrives, and a day is over.
        self.cloud.scheduler.sleep(LATE_SECONDS)
        for node in self.cloud.nodes.values():
            node.process.pass_a_day()
        self._delete_born(lambda born: born.unborn or born.kept is not None)
        self._drop_snapshots(lambda taken: (
            taken.lost
            or taken.row['status'] in ('deleting', 'error_deleting')))
        self.api.reset_status(self.truth.kept is not None)
        row = self.api.tables.volumes[self.api.volume]
        if row['status'] in ('deleting', 'deleted') or (
                self.truth.kept is not None):
            return self._end_deletion()
        if self.unmanaging:
            return self._end_unmanaging()
        self.first.end_unattached()
        self.second.end_unattached()
        self.second.check_data()
        self.second.clean_up()
        for found in self.api.tables.attachments_of(self.api.volume):
            if found['id'] != self.first.attachment:
                attachment = found['id']
                self.first.patiently('detach', lambda: self.api.disconnect(
                    attachment))
        if self.first.attachment:
            self.api.complete_again(self.first.attachment)
        self.first.ensure(self._some_node())
        self.first.check_data()
        if isinstance(self.first.server, outside.Served):
            # The node looks after what it serves, for as long as it does.
            self.first.clean_up()

    def _some_node(self) -> cloud_module.Node:
        """One that has the volume or can take it in."""
        row = self.cloud.row(self.api.volume)
        home = self.cloud.nodes[row.node].group.report()
        lv = home.lvs[names.data_lv(row.lv)]
        # What is a snapshot is not written: another LV is.
        stays = not lv_tags.Tags.parse(lv.tags).snaps
        return self.choices.choice([
            node for node in self.cloud.nodes.values()
            if node.name == row.node and stays or (
                pools.free(node) > lv.size
                and node.group.block_size == home.block_size)])

    def _end_deletion(self) -> None:
        self.first.clean_up()
        self.second.clean_up()
        if not self.api.tables.volumes[self.api.volume]['deleted']:
            self.first.patiently('delete', self.api.delete)

    def _end_unmanaging(self) -> None:
        self.first.clean_up()
        self.second.clean_up()
        self._drop_snapshots(lambda taken: True)
        self.first.patiently('unmanage', self.api.unmanage)

    def _drop_snapshots(self, which: typing.Callable[
            [snaps.Snapshot], bool]) -> None:
        for taken in self.api.snapshots:
            if which(taken):
                self.first.patiently('drop snapshot',
                                     lambda: snaps.drop(self.api, taken))

    def _delete_born(self, which: typing.Callable[
            [truth_module.Truth], bool]) -> None:
        for born in self.truth.born:
            if which(born) and not self.cloud.row(born.volume).deleted:
                api = control.Api(self.cloud, born.volume)
                self.first.patiently('delete', api.delete)

    def end(self, delete: bool) -> None:
        self._delete_born(lambda born: True)
        self._drop_snapshots(lambda taken: True)
        row = self.api.tables.volumes[self.api.volume]
        if row['deleted']:
            return
        self.first.check_data()
        self.first.clean_up()
        if delete:
            self.first.patiently('delete', self.api.delete)
        else:
            node = self._some_node()
            self.first.patiently('attach', lambda: self.first.attach(node))
            self.first.check_data()
