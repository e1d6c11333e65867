# SPDX-License-Identifier: Apache-2.0
"""A start that was interrupted ends at once."""
from __future__ import annotations

import concurrent.futures
import threading
import unittest
from unittest import mock

from lab import database, lab, remains


class RemoveTest(unittest.TestCase):

    def test_databases_that_are_being_made_are_not_waited_for(self) -> None:
        """They are made in a network of their own, for some minutes."""
        ended = threading.Event()
        self.addCleanup(ended.set)
        found = lab.Lab('some')
        found.network = mock.Mock()
        pool = found._pool = concurrent.futures.ThreadPoolExecutor(1)
        making = pool.submit(ended.wait)
        with (mock.patch.object(database, 'abandon', ended.set),
              mock.patch.object(remains, 'remove') as remove):
            end = threading.Thread(target=found._remove, daemon=True)
            end.start()
            end.join(30)
        self.assertTrue(making.done())
        remove.assert_called_once_with('some')
