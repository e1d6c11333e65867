# SPDX-License-Identifier: Apache-2.0
"""What users, Nova and operators ask for in a schedule."""

from __future__ import annotations

import dataclasses
import random
import typing

from cinder_dmclone import names
from tests.simulation import backups
from tests.simulation import births
from tests.simulation import cloud as cloud_module
from tests.simulation import control
from tests.simulation import nova as nova_module
from tests.simulation import outside
from tests.simulation import reverts
from tests.simulation import scheduler
from tests.simulation import snaps
from tests.simulation import truth as truth_module

ENDINGS = ('success', 'success', 'early', 'quiet', 'never', 'held', 'split')

LATE_SECONDS = 200.0
MEETING_SECONDS = 1000.0
PART_SECONDS = 400.0

Step = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Story:
    """Lines of steps; the lines are told at the same time.

    :ivar delete: whether the volume is deleted in the end
    :ivar last: how the last node differs from the others
    :ivar serves_the_full: whether a server is served over iSCSI whose node
        has no room
    """

    hosts: tuple[str, ...]
    lines: tuple[tuple[Step, ...], ...]
    delete: bool = True
    own_metadata: bool = False
    last: tuple[tuple[str, int], ...] = ()
    serves_the_full: bool = False


def line(text: str) -> tuple[Step, ...]:
    """Steps from text: 'attach b, wait 5, live c success'."""
    return tuple(tuple(step.split()) for step in text.split(','))


def base(text: str, *others: str, delete: bool = True) -> Story:
    lines = tuple(map(line, (text, *others)))
    words = {word for steps in lines for step in steps for word in step}
    return Story(('a', 'b', 'c') if 'c' in words else ('a', 'b'), lines,
                 delete)


# A node with other disks, or with room for little more than one volume.
DIFFERENCES = ((('block_size', 4096),), (('gib', 2),))
FULL = (('gib', 0),)

# For the systematic part: each is disturbed at every step.
BASE = {
    'attach': base('attach b'),
    'here': base('attach a, wait 3, detach, attach b, wait 3'),
    'chain': base('attach b, detach, attach c'),
    'return': base('attach b, detach, attach a'),
    'live': base('attach a, live b success'),
    'live chain': base('attach b, live c early'),
    'live quiet': base('attach a, live b quiet'),
    'live never': base('attach a, live b never'),
    'live held': base('attach a, live b held'),
    'held chain': base('attach b, live c held'),
    'delete': base('attach b, detach, delete'),
    'extend': base('attach b, detach, extend'),
    'migrate': base('migrate b, attach b'),
    'fill': base('attach b, wait 1, fill, wait 3, detach'),
    'served': base('attach b, detach, attach x, wait 3, detach'),
    'full': dataclasses.replace(
        base('attach b, detach, attach c, wait 3, detach'),
        last=FULL, serves_the_full=True),
    'cut': base('attach a, fill, cut, flush, wait 3, detach, attach b'),
    'cut cut': base('attach b, fill, cut, fill, cut, flush, wait 30, detach, '
                    'attach a'),
    'cut chain': base('attach b, cut, live a early, fill, cut, '
                      'live c success'),
    'cut served': base('attach x, fill, cut, flush, wait 3, detach, '
                       'attach a'),
    'snap': base('snap, attach b, wait 3, detach, unsnap'),
    'snap home': base('snap, attach a, fill, wait 3, detach, unsnap'),
    'snap used': base('attach a, fill, snap, fill, flush, wait 3, detach, '
                      'attach b, unsnap'),
    'snap hydrating': base('attach b, fill, snap, fill, wait 30, detach, '
                           'snap, attach a'),
    'snap live': base('attach a, fill, snap, live b success, fill, unsnap'),
    'snap unflushed': base('attach a, fill, detach, snap, wait 3, attach b'),
    'snap purged': base('snap, attach b, wait 3, detach, snap, purge'),
    'snap cascade': base('snap, attach b, snap, wait 3, detach, delete'),
    'revert same': base('snap, migrate b, migrate a, snap, revert, attach b'),
    'revert': base('attach a, fill, snap, fill, wait 3, detach, revert, '
                   'attach a, fill, wait 3, detach, unsnap'),
    'revert hydrating': base('attach b, fill, snap, fill, detach, revert, '
                             'attach b, fill, wait 3, detach, attach a'),
    'revert chain': base('snap, attach b, fill, detach, attach c, fill, '
                         'wait 3, detach, revert, attach b, fill'),
    'revert away': base('snap, attach b, fill, wait 30, detach, revert, '
                        'attach b, fill, wait 3, detach, delete'),
    'revert parted': base('snap, attach b, fill, wait 30, detach, part a b, '
                          'revert, attach b, fill, wait 3'),
    'revert lent': base('snap, attach b, fill, wait 30, detach, birth c, '
                        'revert, attach b, fill'),
    'revert twice': base('snap, attach b, fill, detach, revert, attach b, '
                         'fill, wait 1, detach, revert, attach a, fill'),
    'revert used': base('attach a, fill, snap, fill, forget, revert, '
                        'fill, wait 3, detach'),
    'birth home': base('birth b, attach a, wait 30, detach'),
    'birth in use': base('attach a, fill, birth a, flush, wait 3, detach, '
                         'attach b, delete'),
    'birth chain here': base('attach b, part a b, birth b, wait 3'),
    'birth': base('migrate b, birth a, delete'),
    'birth chain': base('migrate b, part a b, birth c, delete'),
    'birth away': base('birth b, attach c, wait 3, detach'),
    'birth stays': base('birth b, part a b, attach c, wait 30, detach, '
                        'attach a'),
    'backup': base('backup a, backup x, snap, backup b, attach b, wait 3, '
                   'detach, backup b, backup a'),
    'backup used': base('snap, attach b, fill, backup_snap x, backup_snap a, '
                        'unsnap, detach'),
    'backup unsnap': base('snap, attach b, wait 30, backup_snap x',
                          'wait 100, unsnap'),
    'backup leaves': base('backup x reset', 'wait 3, attach b, fill, wait 30, '
                          'detach'),
    'backup here leaves': base('backup a reset', 'wait 3, attach b, fill, '
                               'wait 30, detach'),
    'backup reset': base('backup x reset, backup a reset'),
    'backup dies': base('backup a dies, backup x dies, attach b'),
}


# Two calls at the same time, in each of these states.
STATES = {
    'new': 'wait 0',
    'attached': 'attach a',
    'hydrating': 'attach b',
    'detached': 'attach b, detach',
    'pinned': 'snap, attach b, snap',
    'behind': 'snap, attach b, detach',
}
CALLS = ('attach a', 'attach b', 'attach2 a', 'attach2 c', 'attach2 x',
         'detach', 'live b success', 'live c held', 'extend', 'migrate c',
         'delete', 'image', 'drop', 'again', 'snap', 'unsnap', 'revert',
         'backup a')


def pair(state: str, one: str, other: str) -> Story:
    return base(f'{STATES[state]}, meet, linger, {one}',
                f'meet, linger, {other}')


def of_seed(choices: random.Random, others: random.Random) -> Story:
    """
    :param others: decides about what came later: most seeds stay as they were
    """
    story = _of_seed(choices)
    if others.random() < 0.1:
        return dataclasses.replace(story, last=FULL, serves_the_full=True)
    if others.random() < 0.1:
        return dataclasses.replace(story, lines=tuple(
            tuple(_outside(step, others) for step in steps)
            for steps in story.lines))
    if others.random() < 0.3:
        return dataclasses.replace(story, lines=tuple(
            tuple(_with_cuts(steps, others)) for steps in story.lines))
    if others.random() < 0.2:
        return dataclasses.replace(story, lines=tuple(
            tuple(backups.woven(steps, others)) for steps in story.lines))
    return story


def _with_cuts(steps: typing.Iterable[Step],
               choices: random.Random) -> typing.Iterator[Step]:
    for step in steps:
        yield step
        if choices.random() < 0.4:
            yield (choices.choice(('cut', 'snap', 'snap', 'unsnap',
                                   'revert')),)


def _outside(step: Step, choices: random.Random) -> Step:
    """The same, perhaps for a server on a host without the backend."""
    what, *words = step
    if what in ('attach', 'attach2') and choices.random() < 0.5:
        return what, outside.Outside.host
    return step


def _of_seed(choices: random.Random) -> Story:
    hosts = ('a', 'b', 'c')[:choices.choice((2, 3, 3))]
    first = _main_line(choices, hosts)
    lines = [first]
    if choices.random() < 0.6:
        lines.append(_side_line(choices, hosts))
    return Story(hosts, tuple(lines), choices.random() < 0.7,
                 choices.random() < 0.2,
                 choices.choice((*[()] * 5, *DIFFERENCES)))


def _main_line(choices: random.Random,
               hosts: typing.Sequence[str]) -> tuple[Step, ...]:
    steps: list[Step] = []
    attached = False
    for _ in range(choices.choice((2, 3, 4, 6))):
        host = choices.choice(hosts)
        if attached:
            step: Step = choices.choice((
                ('detach',), ('live', host), ('live', host), ('fill',)))
            if step[0] == 'live':
                step += (choices.choice(ENDINGS),)
            attached = step[0] != 'detach'
        else:
            step = choices.choice((
                ('attach', host), ('attach', host), ('attach', host),
                ('extend',), ('migrate', host), ('image',)))
            attached = step[0] == 'attach'
        steps.append(step)
        if choices.random() < 0.4:
            steps.append(('wait', choices.choice(('1', '5', '30', '300'))))
    return tuple(steps)


def _side_line(choices: random.Random,
               hosts: typing.Sequence[str]) -> tuple[Step, ...]:
    """Somebody else asks for the same volume."""
    steps: list[Step] = []
    for _ in range(choices.choice((1, 2, 3))):
        steps.append(('wait', choices.choice(('0', '0', '1', '7', '60'))))
        host = choices.choice(hosts)
        steps.append(choices.choice((
            ('attach2', host), ('attach2', host), ('detach2',), ('drop',),
            ('extend',), ('migrate', host), ('image',), ('delete',),
            ('again',), ('kill', host), ('power', host))))
    return tuple(steps)


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

    def tell(self, steps: typing.Sequence[Step]) -> None:
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

    def _attach2(self, host: str) -> None:
        self.second.attach(self._place(host))

    def _detach2(self) -> None:
        self.second.detach()

    def _drop(self) -> None:
        """A user deletes an attachment, whatever goes on."""
        found = self.api.tables.attachments_of(self.api.volume)
        if found:
            self.truth.meddled = True
            self.api.disconnect(self.choices.choice(found)['id'])

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

    def _image(self) -> None:
        self.api.image(self.truth)

    def _delete(self) -> None:
        self.api.delete()

    def _part(self, one: str, other: str) -> None:
        """Let two nodes be without each other for a while."""
        def heal() -> None:
            self.cloud.scheduler.sleep(PART_SECONDS)
            self.cloud.heal()
        self.cloud.partition(self._node(one), self._node(other))
        self.cloud.scheduler.spawn('heal', heal)

    def _purge(self) -> None:
        self.api.purge()

    def _snap(self) -> None:
        snaps.take(self.api, self.truth)

    def _unsnap(self) -> None:
        if self.api.snapshots:
            snaps.drop(self.api, self.choices.choice(self.api.snapshots))

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

    def calm(self) -> None:
        """One server keeps the volume; what others left is cleaned up."""
        # What is late arrives, and a day is over.
        self.cloud.scheduler.sleep(LATE_SECONDS)
        for node in self.cloud.nodes.values():
            node.process.pass_a_day()
        self._delete_born(lambda born: born.unborn or born.kept is not None)
        self._drop_snapshots(lambda taken: (
            taken.lost or taken.row['status'] == 'deleting'))
        row = self.api.tables.volumes[self.api.volume]
        if row['status'] in ('deleting', 'deleted') or (
                self.truth.kept is not None):
            return self._end_deletion()
        self.first.end_unattached()
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
        size = home.lvs[names.data_lv(row.lv)].size
        return self.choices.choice([
            node for node in self.cloud.nodes.values()
            for group in [node.group.report()]
            if node.name == row.node or (
                group.free > size and group.block_size == home.block_size)])

    def _end_deletion(self) -> None:
        self.first.clean_up()
        self.second.clean_up()
        if not self.api.tables.volumes[self.api.volume]['deleted']:
            self.first.patiently('delete', self.api.delete)

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
