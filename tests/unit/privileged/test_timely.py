# SPDX-License-Identifier: Apache-2.0
"""A privileged call that begins late."""

from __future__ import annotations

import importlib
import types
import typing
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import lio
from tests.unit import base

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'


class TimelyTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.removed = self.enterContext(mock.patch.object(lio, '_remove'))
        self.now = 100.0
        self.enterContext(mock.patch.object(
            privileged.time, 'monotonic', lambda: self.now))
        self.enterContext(mock.patch.object(
            privileged.context, 'channel',
            types.SimpleNamespace(running=True, remote_call=self.remote)))
        self.queued = 0.0

    def remote(self, name: str, arguments: typing.Any, named: typing.Any,
               timeout: float) -> typing.Any:
        """As ``oslo_privsep.daemon.Daemon._process_cmd``."""
        self.assertEqual(lio.CHANGE_SECONDS, timeout)
        self.now += self.queued
        module, _, function = name.rpartition('.')
        found = getattr(importlib.import_module(module), function)
        self.assertTrue(privileged.context.is_entrypoint(found))
        privileged.context.set_client_mode(False)
        try:
            return found(*arguments, **named)
        finally:
            privileged.context.set_client_mode(True)

    def test_in_time(self) -> None:
        lio.remove(IQN)
        self.removed.assert_called_once_with(IQN)

    def test_what_its_caller_has_given_up_is_not_carried_out(self) -> None:
        self.queued = lio.CHANGE_SECONDS - lio.LOCK_SECONDS + 1
        self.assertRaises(exceptions.CommandTimeout, lio.remove, IQN)
        self.removed.assert_not_called()
