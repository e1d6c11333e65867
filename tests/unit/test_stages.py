# SPDX-License-Identifier: Apache-2.0
"""What tools/test says of what failed."""
from __future__ import annotations

import unittest

from tools import stages

# As stestr prints it.
_LOG = '''\
{0} tests.a.A.test_good [0.000148s] ... ok
{0} tests.a.A.test_first [0.002610s] ... FAILED

Captured /var/tmp/log:
~~~~~~~~~~~~~~~~~~~~~~
    ======
of a log

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "a.py", line 12, in test_first
    raise KeyError('x')

    KeyError: 'x'


Captured traceback-1:
~~~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "a.py", line 6, in finish
    raise ValueError('second')

    ValueError: second

{1} tests.a.A.test_other [0.000148s] ... ok
{1} tests.a.A.test_last [0.007779s] ... FAILED

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

    LabError: last


==============================
Failed 2 tests - output below:
==============================

tests.a.A.test_first
--------------------

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

    KeyError: 'x'

======
Totals
======
'''


class RaisedTest(unittest.TestCase):

    def test_each_error_once_by_test(self) -> None:
        found = stages.raised(_LOG).splitlines()
        self.assertEqual(
            ['tests.a.A.test_first', 'tests.a.A.test_first',
             'tests.a.A.test_last'],
            [line for line in found if line.startswith('tests')])
        self.assertEqual(
            ["KeyError: 'x'", 'ValueError: second', 'LabError: last'],
            [line.strip() for line in found if 'Error: ' in line])
        self.assertNotIn('of a log', '\n'.join(found))

    def test_nothing_failed(self) -> None:
        self.assertEqual('', stages.raised('{0} tests.a [1s] ... ok\n'))
