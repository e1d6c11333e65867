# SPDX-License-Identifier: Apache-2.0

import os
from unittest import mock

from cinder_dmclone.privileged import lvm
from cinder_dmclone.privileged import process
from cinder_dmclone.privileged import pvck
from cinder_dmclone.privileged import syscalls
from tests.unit.privileged import test_dm

PVS = '''  Retrying metadata scan.
  /dev/sda  other
  /dev/sdb  [unknown]
  /dev/sdc
  [unknown] third
'''


class PvckTest(test_dm.Case):

    def setUp(self) -> None:
        super().setUp()
        self.argv: list[list[str]] = []
        self.output, self.errors, self.status = b'', b'', 0
        self.text: bytes | None = b'gg {\n}\n\0'
        for where, name, value in (
                (lvm, '_filter', lambda: 'FILTER'),
                (process, 'outcome', self.outcome)):
            self.enterContext(mock.patch.object(where, name, value))

    def outcome(self, argv: list[str], timeout: float) -> process.Outcome:
        self.argv.append(argv)
        if '-f' in argv and self.text is not None:
            with open(argv[argv.index('-f') + 1], 'xb') as file:
                file.write(self.text)
        return process.Outcome(self.status, self.output, self.errors)

    def test_disks_of_groups_that_are_not_found(self) -> None:
        self.output = PVS.encode()
        self.assertEqual(['/dev/sdb'], pvck.lost())

    def test_headers_that_are_wrong_are_read(self) -> None:
        self.output, self.status = b'metadata text at 7680', 5
        self.assertEqual('metadata text at 7680', pvck.headers('/dev/sdb'))
        self.assertEqual([[
            'lvm', 'pvck', '--dump', 'headers', '/dev/sdb', '--config',
            'backup/archive=0 FILTER']], self.argv)

    def test_nothing_is_written_by_a_search(self) -> None:
        pvck.search('/dev/sdb')
        self.assertNotIn('--repair', self.argv[0])

    def test_a_description(self) -> None:
        self.assertEqual(('gg {\n}\n', ''), pvck.extract('/dev/sdb', 6656))
        self.assertIn('metadata_offset=6656', self.argv[0])
        self.assertFalse(os.path.exists(
            self.argv[0][self.argv[0].index('-f') + 1]))

    def test_what_is_wrong_with_one(self) -> None:
        self.errors = b'  WARNING: parse error for metadata at 6656\n'
        self.assertEqual('WARNING: parse error for metadata at 6656',
                         pvck.extract('/dev/sdb', 6656)[1])
        self.errors, self.status = b'', 5
        self.assertIn('status 5', pvck.extract('/dev/sdb', 6656)[1])
        self.status, self.text = 0, None
        self.assertIn('No such file', pvck.extract('/dev/sdb', 6656)[1])
        self.text = b'\xff'
        self.assertIn('decode', pvck.extract('/dev/sdb', 6656)[1])

    def test_what_is_not_about_the_description(self) -> None:
        """With a devices file LVM says this of each of our commands."""
        notice = (b'  Please remove the lvm.conf %sfilter, it is ignored with '
                  b'the devices file.\n')
        self.errors = notice % b'' + notice % b'global_'
        self.assertEqual(('gg {\n}\n', ''), pvck.extract('/dev/sdb', 6656))
        self.errors += b'  WARNING: parse error for metadata at 6656\n'
        self.assertEqual('WARNING: parse error for metadata at 6656',
                         pvck.extract('/dev/sdb', 6656)[1])

    def test_it_is_durable_when_it_is_written(self) -> None:
        written: list[str] = []

        def run(argv: list[str], timeout: float) -> str:
            with open(argv[argv.index('-f') + 1], encoding='utf-8') as file:
                written.append(file.read())
            self.assertEqual(['lvm', 'pvck', '--yes', '--repair'], argv[:4])
            return ''
        self.run_.side_effect = run
        with mock.patch.object(syscalls, 'fsync') as fsync:
            pvck.replace('/dev/sdb', 'gg {\n}\n')
        self.assertEqual(['gg {\n}\n'], written)
        self.assertEqual('/dev/sdb', fsync.mock_calls[0].args[0])

    def test_only_devices(self) -> None:
        for call in (lambda: pvck.headers('/etc/passwd'),
                     lambda: pvck.search('-f'),
                     lambda: pvck.extract('/dev/../x', 1),
                     lambda: pvck.replace('sda', '')):
            self.assertRaises(ValueError, call)
        self.assertEqual([], self.argv)
        self.run_.assert_not_called()
