# SPDX-License-Identifier: Apache-2.0
"""What an operator reads about a step that cannot be taken for a while."""

from __future__ import annotations

import logging

from cinder_dmclone import exceptions
from cinder_dmclone import names
from tests.unit import base
from tests.unit.fake import ports


class HindranceTest(base.CloudTestCase):

    def test_a_clone_that_is_kept_busy_is_told_of_twice(self) -> None:
        self.relocated()
        clone = str(names.clone(self.cloud.row(self.volume).lv))
        tries = []

        def before(call: ports.Call) -> None:
            if call.method == 'remove' and call.arguments == (clone,):
                tries.append(call)
                raise exceptions.DeviceBusy(device=clone)
        self.cloud.before = before
        logging.disable(logging.NOTSET)
        with self.assertLogs('cinder_dmclone.reconcile.hindrances') as logs:
            self.cloud.settle()
            self.assertGreater(len(tries), 3)
            self.assertEqual(1, len(logs.records))
            self.cloud.before = lambda call: None
            self.cloud.settle()
        begin, end = (record.getMessage() for record in logs.records)
        self.assertIn(f'{clone} is in use', begin)
        self.assertIn('works again', end)
        self.assert_settled()
