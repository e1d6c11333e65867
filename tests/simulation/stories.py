# SPDX-License-Identifier: Apache-2.0
"""What users, Nova and operators ask for in a schedule."""

from __future__ import annotations

import dataclasses
import typing

Step = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Story:
    """Lines of steps; the lines are told at the same time.

    :ivar delete: whether the volume is deleted in the end
    :ivar last: how the last node differs from the others
    :ivar serves_the_full: whether a server is served over iSCSI whose node
        has no room
    :ivar multiattach: whether both servers may have the volume at once
    :ivar thin: the nodes whose volumes are thin
    :ivar holes: regions of the volume that were never written
    :ivar pools: what the pools of nodes have room for, in regions
    """

    hosts: tuple[str, ...]
    lines: tuple[tuple[Step, ...], ...]
    delete: bool = True
    own_metadata: bool = False
    last: tuple[tuple[str, int], ...] = ()
    serves_the_full: bool = False
    multiattach: bool = False
    thin: tuple[str, ...] = ()
    holes: tuple[int, ...] = ()
    pools: typing.Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Whether a volume that is lost may be recovered."""
        return any(step in line for line in self.lines
                   for step in (('recover',), ('give_up',)))


def line(text: str) -> tuple[Step, ...]:
    """Steps from text: 'attach b, wait 5, live c success'."""
    return tuple(tuple(step.split()) for step in text.split(','))


def base(text: str, *others: str, delete: bool = True) -> Story:
    lines = tuple(map(line, (text, *others)))
    words = {word for steps in lines for step in steps for word in step}
    return Story(('a', 'b', 'c') if 'c' in words else ('a', 'b'), lines,
                 delete)


def shared(text: str, *others: str) -> Story:
    """A story of two servers that have the volume at the same time."""
    return dataclasses.replace(base(text, *others), multiattach=True)


def sparse(text: str, *others: str,
           thin: tuple[str, ...] = ('a', 'b', 'c')) -> Story:
    """A story of a volume with holes."""
    return dataclasses.replace(base(text, *others), thin=thin,
                               holes=(0, 3, 4, 6))


def tight(room: int, text: str, *others: str) -> Story:
    """The same, with room in the pool of b for so many regions.

    A copy of the volume needs eight of them.
    """
    return dataclasses.replace(sparse(text, *others), pools={'b': room})


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
    'live back': base('attach a, live b lazy, live a success'),
    'live never': base('attach a, live b never'),
    'live held': base('attach a, live b held'),
    'held chain': base('attach b, live c held'),
    'delete': base('attach b, detach, delete'),
    'unmanage': base('attach b, part a b, detach, unmanage, wait 500, '
                     'unmanage'),
    'extend': base('attach b, detach, extend'),
    'extend used': base('attach b, fill, extend, fill, wait 3, extend, live a '
                        'success, detach'),
    'extend live': base('attach a, fill, live b success, fill, wait 3, '
                        'detach', 'wait 3, extend'),
    'extend cut': base('attach a, fill, snap, extend, fill, wait 30, detach, '
                       'attach b, unsnap'),
    'migrate': base('migrate b, attach b'),
    'migrate on': base('migrate b, wait 30, detach2, migrate a',
                       'wait 3, attach2 c, wait 3, fill'),
    'fill': base('attach b, wait 1, fill, wait 3, detach'),
    'served': base('attach b, detach, attach x, wait 3, detach'),
    'served here': base('attach b, detach, part a b, attach x, wait 100, '
                        'detach, attach b, wait 3, detach'),
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
    'move': base('snap, mvsnap b, attach a, fill, wait 30, detach, unsnap'),
    'move left': base('snap, attach b, fill, wait 30, mvsnap c, fill, '
                      'wait 30, detach, revert, attach b, fill, wait 3, '
                      'detach, unsnap'),
    'move used': base('attach a, fill, snap, fill, mvsnap b, fill, snap, '
                      'mvlast b, flush, wait 30, detach'),
    'move two': base('snap, snap, mvsnap b, wait 30, unsnap, mvsnap b, '
                     'wait 30, attach a, fill, wait 3, detach'),
    'move again': base('snap, mvsnap b, wait 30, birth_snap a, mvsnap c, '
                       'birth_snap b, wait 30, mvsnap a, wait 30, unsnap'),
    'move read': base('snap, attach b, wait 30, detach, backup_snap x, '
                      'mvsnap c, backup_snap a, wait 30, backup_snap b, '
                      'birth_snap a, revert, attach b, fill, wait 3, detach'),
    'move unsnap': base('snap, attach b, fill, wait 30, mvsnap c, unsnap, '
                        'wait 3, detach'),
    'move stay': base('snap, mvsnap b, stay, wait 30, mvsnap b, wait 1, '
                      'stay, attach b, fill, wait 3, detach'),
    'move raced': base('snap, mvsnap b, wait 30, mvsnap a, wait 30, snap, '
                       'detach, delete', 'wait 0, attach b, fill, wait 1, '
                       'mvsnap a, detach, revert, attach a, fill'),
    'move parted': base('snap, attach b, wait 30, mvsnap c, part a c, '
                        'birth_snap c, wait 500, detach'),
    'move thin': sparse('attach a, fill, wait 3, detach, snap, mvsnap b, '
                        'attach a, fill, wait 30, detach, revert, attach b, '
                        'fill, wait 3, detach'),
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
    'birth hydrating': base('birth a, attach b, birth c, fill, wait 30, '
                            'detach, birth a'),
    'birth waits': base('attach b, birth b, part a b, fill, wait 300, '
                        'detach, attach b, fill'),
    'birth in use': base('attach a, fill, birth a, flush, wait 3, detach, '
                         'attach b, delete'),
    'birth behind': base('attach a, fill, birth a, live b held, wait 30, '
                         'detach'),
    'birth chain here': base('attach b, part a b, birth b, wait 3'),
    'birth': base('migrate b, birth a, delete'),
    'birth chain': base('migrate b, part a b, birth c, delete'),
    'birth torn': base('attach b, wait 30, detach, birth a'),
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
    'backup reset': base('attach b, wait 30, detach, backup x reset, '
                         'backup b reset'),
    'backup dies': base('backup a dies, backup x dies, attach b'),
    'two here': shared('attach a, attach2 a, see, detach, see, detach2, '
                       'attach b, wait 3, detach'),
    'two': shared('attach a, attach2 b, see, flush, detach, see, attach c, '
                  'see, detach2, detach, attach b, wait 3'),
    'two outside': shared('attach x, attach2 a, see, detach, see, detach2, '
                          'attach b, wait 3'),
    'two hydrating': shared('attach b, part a b, attach2 c, attach2 b, see, '
                            'detach2, attach2 c, see, detach, see, detach2'),
    'two cut': shared('attach a, fill, cut, attach2 c, see, cut, detach2, '
                      'attach2 a, see, wait 30, see, detach, attach x, see, '
                      'detach, detach2, attach b'),
    'two served': shared('attach b, detach, part a b, attach x, attach2 b, '
                         'attach2 c, wait 500, see, detach2, attach2 b, see, '
                         'detach'),
    'two live': shared('attach a, attach2 c, live b success, see, '
                       'live c early, detach, live2 a success, see, '
                       'detach2, attach b'),
    'two live never': shared('attach a, attach2 c, live c never, '
                             'live b held, see, detach2, detach, attach b, '
                             'wait 3'),
    'two offered': shared('attach a, live b success, see, detach2, detach',
                          'wait 0, attach2 a, see'),
    'two snap': shared('attach a, fill, attach2 a, snap, see, wait 30, '
                       'detach2, attach2 b, snap, detach2, snap, see'),
    'two behind': shared('snap, attach b, wait 30, attach2 a, see, part a b, '
                         'unsnap, detach2, detach'),
    'thin': sparse('attach b'),
    'thin here': sparse('attach a, wait 3, detach, attach b, fill, wait 3, '
                        'detach, migrate a'),
    'thin live': sparse('attach a, meet, live b success, wait 30, detach, '
                        'attach a', 'meet, trickle'),
    'thin chain': sparse('attach b, detach, attach c'),
    'thin birth': sparse('birth a, attach a, wait 30, detach, birth b'),
    'thin snap': sparse('snap, attach a, flush, wait 30, fill, detach, '
                        'revert, attach b, fill, wait 3, detach, unsnap'),
    'thin snap used': sparse('attach a, fill, snap, fill, flush, snap, trim, '
                             'wait 3, unsnap, detach, attach b, fill, '
                             'wait 30, unsnap, detach'),
    'thin snap live': sparse('attach b, fill, snap, fill, wait 30, snap, '
                             'live a success, fill, snap, wait 30, detach, '
                             'snap, delete'),
    'thin snap moves': sparse('attach a, fill, snap, fill, mvsnap b, snap, '
                              'fill, wait 30, mvlast b, birth_snap b, '
                              'wait 30, backup_snap a, detach, unsnap'),
    'thin pinned': sparse('attach b, detach, snap, wait 30, attach b, fill, '
                          'birth a, wait 3, detach, attach a, unsnap'),
    'thin lent': sparse('birth b, part a b, attach a, fill, wait 3, detach, '
                        'attach a, fill, snap, detach, delete'),
    'thin births': sparse('attach a, fill, birth a, fill, snap, birth_snap a, '
                          'flush, detach, birth a, delete'),
    'thin revert': sparse('snap, attach a, fill, snap, fill, detach, revert, '
                          'attach a, fill, wait 3, detach, revert, attach b, '
                          'fill, wait 3, detach, unsnap'),
    'thin two': dataclasses.replace(
        shared('attach a, fill, attach2 a, snap, see, birth a, detach2, see, '
               'detach, attach b'), thin=('a', 'b')),
    'thin extend': sparse('attach a, fill, extend, fill, wait 3, snap, fill, '
                          'extend, detach, attach b, wait 3, extend, fill, '
                          'wait 30, detach, unsnap'),
    'thin cut': sparse('attach a, cut, fill, flush, wait 30, detach, '
                       'attach b, wait 3, detach',
                       'wait 0, cut, wait 1, cut'),
    'thin thick': sparse('attach b, wait 30, detach, attach a, wait 3',
                         thin=('a',)),
    'thin trim': sparse('attach a, fill, trim, cut, trim, flush, wait 30, '
                        'fill, trim, detach, attach b, trim, wait 30, trim, '
                        'detach, attach a, fill, wait 3, detach'),
    'pool': tight(15, 'attach b, fill, wait 30, detach', 'wait 0, birth b',
                  'wait 0, birth b'),
    'pool cut': tight(23, 'attach b, fill, meet, snap, fill, wait 30, detach',
                      'meet, birth b'),
    'pool snap': tight(15, 'snap, meet, mvsnap b, attach b, fill, wait 30, '
                       'detach', 'meet, birth b'),
    'exchange': base('exchange b, attach b, fill, wait 3, detach, attach a'),
    'exchange moved': base('attach b, wait 30, detach, exchange a, attach c, '
                           'wait 3, detach, exchange b'),
    'exchange hydrating': base('attach b, detach, part a b, exchange c, '
                               'wait 300, attach a, fill, wait 3, detach'),
    'exchange lent': base('migrate b, birth a, part a b, exchange c, '
                          'attach b, wait 3, detach'),
    'exchange snap': base('snap, unsnap, exchange b, snap, attach a, fill, '
                          'wait 30, detach, unsnap'),
    'forget': base('stray a, attach b, part a b, stray b, forget_all a, '
                   'forget_all b, detach, migrate a, forget_all b, snap, '
                   'attach b, forget_all a'),
    'give up': base('attach b, part a b, lose a, wait 70, give_up, '
                    'wait 200, fill, flush, wait 90, detach, attach b'),
    'give up partly': base('attach b, part a b, lose a, wait 70, give_up, '
                           'power b, wait 30, detach, snap, delete'),
    'give up hasty': base('attach b, part a b, give_up, wait 400, fill, '
                          'wait 3, detach'),
    'recover': base('attach b, part a b, fill, lose b, wait 70, recover, '
                    'detach, attach a, fill, flush, wait 3, detach, '
                    'attach a'),
    'recover snap': base('snap, attach b, part a b, fill, lose b, wait 70, '
                         'recover, detach, attach a, fill, flush, wait 30, '
                         'detach, unsnap'),
    'recover anew': base('attach b, part a b, detach, extend, lose b, '
                         'power b, wait 400, recover, attach a, fill, '
                         'wait 3, detach, attach b'),
    'recover chain': base('migrate b, part a b, migrate c, lose c, wait 70, '
                          'recover, attach b, fill, wait 3, detach, attach a'),
    'drain': base('attach b, wait 30, detach, wait 200, drain, attach c, '
                  'wait 3, detach, drain'),
    'drain wanted': base('drain, attach b, wait 3, detach',
                         'wait 0, want'),
    'drain raced': base('drain, attach b, fill, wait 3, detach, snap, drain',
                        'wait 0, drain, wait 1, drain'),
    'release': base('strand b, release_all a, attach a, fill, wait 3, detach, '
                    'attach b'),
    'release hasty': base('attach b, part a b, release_all a, fill, '
                          'wait 400, fill, release_all a, wait 3, detach'),
    'release moved': base('attach b, wait 1, halt a, wait 200, detach, '
                          'attach c, wait 200, lose b, kill a, wait 100, '
                          'release_all a, power a, wait 30, fill, wait 3, '
                          'detach'),
    'release snap': base('snap, release_all a, attach b, fill, wait 200, '
                         'release_all a, detach, attach a, fill, wait 3, '
                         'detach'),
    'recover hasty': base('attach b, part a b, fill, recover, fill, '
                          'wait 30, recover, detach'),
    'recover halted': base('attach b, fill, halt b, wait 100, recover, fill, '
                           'wait 30'),
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


# The same about a volume that two servers may have.
SHARED_STATES = {
    'new': 'wait 0',
    'home': 'attach a',
    'hydrating': 'attach b',
    'outside': 'attach x',
    'detached': 'attach b, detach',
    'here': 'attach a, attach2 a',
    'two': 'attach a, attach2 b',
    'pinned': 'attach a, snap, wait 30, attach2 b',
    'moved': 'attach a, attach2 b, live b success',
}
SHARED_CALLS = ('attach a', 'attach b', 'attach2 a', 'attach2 b', 'attach2 x',
                'detach', 'detach2', 'live b success', 'live c held',
                'live a early', 'live2 b quiet', 'live2 c success', 'snap',
                'drop', 'again', 'kill a', 'power b')


def pair(state: str, one: str, other: str) -> Story:
    return base(*_together(STATES[state], one, other))


def shared_pair(state: str, one: str, other: str) -> Story:
    one, other = _together(SHARED_STATES[state], one, other)
    return shared(f'{one}, see', other)


def _together(state: str, one: str, other: str) -> tuple[str, str]:
    return f'{state}, meet, linger, {one}', f'meet, linger, {other}'
