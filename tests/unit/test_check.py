# SPDX-License-Identifier: Apache-2.0
"""What a node lacks is told in one line each, and what could not be told."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing
from unittest import mock

from oslo_rootwrap import wrapper

from cinder_dmclone.cli import check
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm_filter
from cinder_dmclone import preflight
from cinder_dmclone import privileged
from cinder_dmclone.privileged import lvm
from cinder_dmclone import units
from tests.unit import base
from tests.unit import test_cli
from tests.unit import test_packaging

HELPER = ['privsep-helper', '--config-file', '/etc/cinder/cinder.conf',
          '--privsep_context', 'cinder_dmclone.privileged.context',
          '--privsep_sock_path', '/tmp/check/privsep.sock']


class RootwrapTest(base.TestCase):
    """rootwrap's own code is asked."""

    def setUp(self) -> None:
        super().setUp()
        self.at = pathlib.Path(self.folder())
        for name in ('filters', 'bin'):
            (self.at / name).mkdir()
        self.filter = self.at / 'filters/cinder-dmclone.filters'
        self.filter.write_text(test_packaging.FILTER.read_text())
        self.helper = self.at / 'bin/privsep-helper'
        self.helper.write_text('')
        self.helper.chmod(0o755)
        self.config = self.at / 'rootwrap.conf'
        self.config.write_text(
            f'[DEFAULT]\nfilters_path = /nosuch,{self.at}/filters\n'
            f'exec_dirs = {self.at}/bin\n')
        # Recent releases have a filter of their own for every helper.
        load = wrapper.load_filters
        self.patch(wrapper, 'load_filters', lambda paths: [
            one for one in load(paths) if one.name != 'privsep-helper'])

    def patch(self, *what: typing.Any) -> None:
        self.enterContext(mock.patch.object(*what))

    def problems(self, prefix: list[str] | None = None) -> list[str]:
        words = [*(prefix or ['sudo', 'cinder-rootwrap', str(self.config)]),
                 *HELPER]
        with mock.patch.object(privileged.context, 'helper_command',
                               lambda path: words):
            return list(check._rootwrap())

    def test_all_is_there(self) -> None:
        self.assertEqual([], self.problems())

    def test_filter_is_not_where_rootwrap_reads(self) -> None:
        self.filter.rename(self.at / 'elsewhere')
        found, = self.problems()
        self.assertIn('does not let the privileged helper start', found)
        self.assertIn('cinder-dmclone install-files', found)

    def test_helper_is_not_where_rootwrap_looks(self) -> None:
        self.helper.unlink()
        found, = self.problems()
        self.assertIn('rootwrap does not find privsep-helper', found)
        self.assertIn(f'exec_dirs in {self.config}', found)

    def test_rootwrap_has_no_configuration(self) -> None:
        self.config.unlink()
        self.assertEqual([f'{self.config} is missing: set rootwrap_config in '
                          'cinder.conf.'], self.problems())

    def test_rootwrap_cannot_read_a_filter(self) -> None:
        self.filter.write_text('no section')
        found, = self.problems()
        self.assertIn('rootwrap cannot read its files', found)

    def test_somebody_who_may_not_read_it(self) -> None:
        with mock.patch('builtins.open', side_effect=PermissionError(
                13, 'Permission denied', str(self.config))):
            with self.assertRaises(check.CannotTell) as caught:
                self.problems()
        self.assertIn(f'{self.config}: Permission denied',
                      str(caught.exception))

    def test_an_operator_with_another_command(self) -> None:
        self.filter.unlink()
        self.assertEqual([], self.problems(['sudo', '-n']))


class RunTest(base.CloudTestCase):

    def check(self, problems: list[str] | Exception = [],
              ready: Exception | None = None,
              rootwrap: list[str] = []) -> tuple[int, list[str], str]:
        out, error = io.StringIO(), io.StringIO()
        hosts = [node.process.world.host for node in (self.a, self.b)]
        told = (problems if isinstance(problems, Exception)
                else [problems, problems])
        with (mock.patch.object(check, '_rootwrap', lambda: rootwrap),
              mock.patch.object(privileged, 'ready', side_effect=ready),
              mock.patch.object(preflight, 'problems', side_effect=told),
              mock.patch.object(lvm_filter, 'advice',
                                lambda: ['set global_filter']),
              mock.patch.object(check, '_restorers', lambda: []),
              contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(error)):
            code = check.run(hosts, [], {})
        return code, out.getvalue().splitlines(), error.getvalue()

    def test_all_is_well(self) -> None:
        """What only the operator can decide does not count."""
        self.assertEqual((0, ['note: set global_filter',
                              'Nothing is missing.'], ''), self.check())

    def test_the_state_of_a_group(self) -> None:
        self.a.group.mda_free = units.Bytes(0)
        code, lines, _ = self.check()
        self.assertEqual(1, code)
        self.assertIn('refuses all changes', lines[0])

    def test_backends_of_one_node_lack_the_same(self) -> None:
        self.assertEqual(
            (1, ['no filter', 'no dm-clone', 'no iscsid',
                 'note: set global_filter'], ''),
            self.check(['no dm-clone', 'no iscsid'], rootwrap=['no filter']))

    def test_nothing_can_be_told(self) -> None:
        code, lines, error = self.check(
            ready=exceptions.HelperNotStarted(command='sudo', reason='1'))
        self.assertEqual((2, []), (code, lines))
        self.assertIn('run this as root', error)
        self.assertEqual(1, error.count('\n'))

    def test_what_lacks_comes_before_what_cannot_be_told(self) -> None:
        code, lines, error = self.check(
            ready=exceptions.HelperNotStarted(command='sudo', reason='1'),
            rootwrap=['no filter'])
        self.assertEqual((1, ['no filter']), (code, lines))
        self.assertIn('The privileged helper does not start', error)

    def test_a_question_that_is_not_answered(self) -> None:
        code, _, error = self.check(exceptions.CommandTimeout(
            command='lvm', seconds=30))
        self.assertEqual(2, code)
        self.assertIn('Command lvm did not end', error)


class CommandTest(base.TestCase):

    def call(self, config: str) -> subprocess.CompletedProcess[str]:
        done = self.run_with_config(test_cli.CONF + config, test_cli.MAIN,
                                    'check')
        self.assertNotIn('Traceback', done.stderr)
        return done

    def test_a_helper_that_does_not_start(self) -> None:
        done = self.call('[cinder_dmclone_privileged]\n'
                         'helper_command = false\n')
        self.assertEqual((2, ''), (done.returncode, done.stdout))
        self.assertIn('cinder-dmclone: The privileged helper does not start',
                      done.stderr)

    def test_a_configuration_that_cannot_be_read(self) -> None:
        done = self.call('this is no option\n')
        self.assertEqual((2, ''), (done.returncode, done.stdout))
        self.assertIn('cinder-dmclone: Failed to parse', done.stderr)


# dmsetup, as far as the probe knows it: slow, and with a list of devices.
DMSETUP = '''#!/bin/sh
case $1 in
create) echo "$4" >"$DEVICES.new"; mv "$DEVICES.new" "$DEVICES/$2" ;;
info) sleep 2; echo 253:9 ;;
remove) rm "$DEVICES/$3" ;;
esac
'''
PROBE = '''
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm

privileged.context.set_client_mode(False)
print(repr(dm.probe()))
'''


class ProbeTest(base.TestCase):
    """The real command, on a dmsetup that only writes down."""

    def setUp(self) -> None:
        super().setUp()
        self.at = pathlib.Path(self.folder())
        (self.at / 'dmsetup').write_text(DMSETUP)
        (self.at / 'dmsetup').chmod(0o755)
        self.devices = self.at / 'devices'
        self.devices.mkdir()

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', PROBE], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
            # What runs in the background of a shell ignores it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env={**os.environ, 'DEVICES': str(self.devices),
                 'PATH': f'{self.at}:{os.environ["PATH"]}'})

    def wait(self, there: bool) -> list[str]:
        """What there is, when there is something, or nothing."""
        deadline = time.monotonic() + 120
        while bool(found := os.listdir(self.devices)) is not there:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return found

    def test_device_has_a_uuid_that_the_rule_matches(self) -> None:
        with self.start() as probe:
            name, = self.wait(True)
            uuid = (self.devices / name).read_text().strip()
            self.assertEqual("''", probe.communicate()[0].strip())
        self.assertRegex(name, 'dmclone-check-.')
        self.assertEqual(name.replace('dmclone-', 'CINDER-DMCLONE-'), uuid)
        self.assertEqual([], os.listdir(self.devices))

    def test_nothing_stays_when_the_daemon_is_ended(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            self.end(number)

    def end(self, number: signal.Signals) -> None:
        """End a probe that has its device; it may be done before that."""
        ended = 0
        while not ended:
            with self.start() as probe:
                while not os.listdir(self.devices) and probe.poll() is None:
                    time.sleep(0.02)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(probe.pid, number)
                probe.communicate()
                ended = probe.returncode
            self.wait(False)


class LvmFilterTest(base.TestCase):

    def advice(self, patterns: list[str], devices_file: bool = False,
               disk: str = '/dev/sdb') -> list[str]:
        scan = (patterns, devices_file, ['/dev/vda3', disk])
        with mock.patch.object(lvm, 'host_scan', lambda: scan):
            return list(lvm_filter.advice())

    def test_the_line_that_is_missing(self) -> None:
        for patterns in ([], ['a|.*|'], ['r|/dmclone-|'],
                         ['a|^/dev/sd|', 'r|.*|'],
                         ['a|/dev/mapper/|', 'r|.*|']):
            found, = self.advice(patterns)
            self.assertIn('global_filter = [ "a|^/dev/vda3$|", '
                          '"a|^/dev/sdb$|", "r|.*|" ]', found)

    def test_a_filter_that_keeps_off(self) -> None:
        for patterns in (['a|^/dev/vda3$|', 'r|.*|'],
                         ['r!/dmclone-!', 'r/^\\/dev\\/sd/'], ['r|.*|']):
            self.assertEqual([], self.advice(patterns), patterns)

    def test_a_disk_that_is_missing(self) -> None:
        """It would be kept out also when it is back."""
        self.assertEqual([], self.advice([], disk='[unknown]'))

    def test_a_devices_file(self) -> None:
        self.assertEqual([], self.advice([], devices_file=True))
