# SPDX-License-Identifier: Apache-2.0
"""What nodes ask each other, and how it crosses the wire."""

from __future__ import annotations

import dataclasses
import logging
import typing
from unittest import mock

from cinder import exception
from oslo_serialization import jsonutils

from cinder_dmclone.database.volumes import RowStore
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.peers import wire
from cinder_dmclone.service import answers
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import ports

# A value for every type of a field.
VALUES: dict[typing.Any, typing.Any] = {
    bool: True, dict[str, typing.Any]: {'host': 'b', 'x': [1, None]},
    dict[str, typing.Any] | None: None, float: 1.5, int: 1 << 40,
    Location | None: None, units.Bytes: units.Bytes(1 << 50),
    LvState: LvState.COPY, GroupUuid | None: 'group',
    Location: Location(NodeName('b@dmclone'), LvUuid('lv')),
    list[str]: ['one', 'two'],
    str: 'text', GroupUuid: 'group', LvUuid: 'lv', VolumeId: 'volume',
    SnapshotId: 'snapshot', NodeName: 'b@dmclone',
    list[SnapshotId]: ['snapshot'],
    messages.Lent: messages.Lent(
        Location(NodeName('a@dmclone'), LvUuid('lv')), 'iqn', 'portal',
        units.Bytes(1 << 50), 512, 'user', 'password')}


def fields(kind: typing.Any) -> list[str]:
    """Of a dataclass, as each request is."""
    return [field.name for field in dataclasses.fields(kind)]


def filled(kind: typing.Any) -> typing.Any:
    """One with a value in each field."""
    hints = typing.get_type_hints(kind)
    return kind(*(VALUES[hints[name]] for name in fields(kind)))


class RequestTest(base.TestCase):

    def test_every_request_is_answered(self) -> None:
        """One that is not is refused only when somebody asks."""
        self.assertEqual(set(messages.Request.__subclasses__()),
                         set(answers.ANSWERS))

    def test_every_request_arrives_as_it_was_sent(self) -> None:
        for kind in answers.ANSWERS:
            with self.subTest(kind.__name__):
                request = filled(kind)
                sent = jsonutils.loads(jsonutils.dumps(wire.pack(request)))
                self.assertEqual(request, wire.unpack(kind, sent))

    def test_every_answer_arrives_as_it_was_given(self) -> None:
        for kind in (messages.Identity, messages.Plan, messages.Room,
                     messages.Shown):
            with self.subTest(kind.__name__):
                answer = filled(kind)
                sent = jsonutils.loads(jsonutils.dumps(wire.pack(answer)))
                found: object = wire.unpack(kind, sent)
                self.assertEqual(answer, found)
                self.assertEqual(repr(answer), repr(found))
        source = VALUES[Location]
        shown = messages.Shown(LvState.HYDRATING, source=source)
        self.assertEqual(source, wire.unpack(messages.Shown,
                                             wire.pack(shown)).source)

    def test_a_question_holds_nothing(self) -> None:
        """H21: whoever asks may hold the lock of the same volume."""
        for kind in answers.ANSWERS:
            if kind.reads:
                self.assertIs(messages.Lock.NONE, kind.lock, kind)
                self.assertFalse(kind.home_only, kind)

    def test_what_is_held_belongs_to_a_volume(self) -> None:
        for kind in answers.ANSWERS:
            if kind.home_only or kind.lock is not messages.Lock.NONE:
                self.assertIn('volume', fields(kind), kind)


class CrossingTest(base.CloudTestCase):
    """Errors of another node arrive as what they are."""

    def ask(self, request: messages.Request[typing.Any]) -> typing.Any:
        return self.a.process.world.peers.ask(self.b.name, request)

    def test_own_errors_become_a_refusal_with_their_text(self) -> None:
        with self.assertRaisesRegex(
                exceptions.PeerRefused, 'b@dmclone refused Prepare.*'
                'does not offer'):
            self.cloud.fate = self._withdraw_first
            self.cloud.connect(self.volume,
                               self.cloud.reserve(self.volume), self.b)

    def _withdraw_first(self, message: ports.Message) -> ports.Fate:
        if message.request == 'Prepare':
            RowStore().withdraw(self.cloud.row(self.volume))
        return ports.Fate.ARRIVES

    def test_other_errors_too(self) -> None:
        """A built-in error of a peer is not taken for one's own."""
        with mock.patch.object(self.b.group, 'report',
                               side_effect=KeyError('bug')):
            with self.assertRaisesRegex(exceptions.PeerRefused, 'KeyError'):
                self.ask(messages.FindRoom(units.Bytes(1)))

    def test_what_is_sent_holds_a_secret_once(self) -> None:
        """Only `Prepare` carries one, and no log shows it."""
        sent = []

        def fate(message: ports.Message) -> ports.Fate:
            sent.append((message.request, jsonutils.dumps(message.fields)))
            return ports.Fate.ARRIVES
        self.cloud.fate = fate
        with self.assertLogs(level='DEBUG') as logs:
            logging.disable(logging.NOTSET)
            self.relocated()
            self.cloud.settle()
            password = next(
                jsonutils.loads(text)['lent']['password']
                for request, text in sent if request == 'Prepare')
        self.assertEqual({'Prepare'}, {request for request, text in sent
                                       if password in text})
        self.assertFalse([line for line in logs.output if password in line])

    def test_what_another_release_asks(self) -> None:
        """It is refused with what is not known, and nothing is done."""
        for request, text in (
                (('Unheard', {'volume': self.volume}), 'Unheard'),
                (('Discard', {'volume': self.volume}), "missing.*'lv'"),
                (('Discard', {'volume': self.volume, 'lv': 'x', 'more': 1}),
                 "unexpected.*'more'"),
                (('FindRoom', {'size': -1}), 'negative')):
            with self.assertRaisesRegex(exception.CinderException,
                                        'release does not know.*' + text):
                self.b.process.endpoint.answer(None, *request)

    def test_what_another_release_answers(self) -> None:
        """Nothing is concluded from it."""
        for found in ({'state': 'snapshot'}, {'state': 'copy', 'more': 1},
                      {'state': 'copy', 'source': 'nowhere'}):
            with mock.patch.dict(answers.ANSWERS, {
                    messages.Show: lambda service, request: found}):
                with self.assertRaisesRegex(exceptions.PeerRefused,
                                            'refused Show.*does not know'):
                    self.ask(messages.Show(LvUuid(self.volume)))
