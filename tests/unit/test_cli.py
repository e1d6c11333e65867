# SPDX-License-Identifier: Apache-2.0
"""The command finds the backends of a node as cinder-volume does."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

from tests.unit import base

CONF = '''
[DEFAULT]
host = node1
state_path = {state}
rpc_response_timeout = 120
enabled_backends = first,foreign,second
[backend_defaults]
volume_driver = cinder_dmclone.driver.DMCloneVolumeDriver
[first]
target_ip_address = 192.0.2.1
volume_group = one
[foreign]
volume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver
[second]
backend_host = other
target_ip_address = 192.0.2.1
volume_group = two
'''

MAIN = '''
import sys
from cinder_dmclone import cli

sys.exit(cli.main(sys.argv[1:]))
'''
# As if the privileged helper were started.
STARTED = '''
from cinder_dmclone import privileged

privileged.ready = lambda: None
'''
# Nobody but another user may make files.
REFUSED = '''
from cinder_dmclone import locks

def refused(path):
    raise PermissionError(13, 'Permission denied', path)

locks._opened = refused
'''
SHOWN = '''
from cinder_dmclone.cli import show

def status(world):
    settings = world.settings
    group = world.host.group.name
    return [f'{settings.node} {group} {settings.budget}'], {}, 0

show._READ['status'] = status
'''

# The first backend has lost its volume group; the second takes a lock.
LOST = '''
from cinder_dmclone import exceptions
from cinder_dmclone.reconcile import activation

def activate(world):
    group = world.host.group.name
    if group == 'one':
        raise exceptions.GroupLost(group='one', disk='/dev/sdx')
    with world.locks.volume('volume', 1.0):
        print('activated', group)
    return {}

activation.activate = activate
'''

LOGS = '''
from oslo_log import log as logging
from cinder_dmclone.reconcile import activation

activation.activate = lambda world: logging.getLogger('x').warning(
    'something happened') or {}
'''

# The first backend has lost its volume group; the second is empty.
METRICS = '''
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.stack import inspect

def report(group, patient):
    if group.name == 'one':
        raise exceptions.GroupLost(group='one', disk='/dev/sdx')
    return lvm.Report(group.name, 'uuid', '', 8, 4, 1, 512, (), {}, 8)

inspect.collect = lambda host, patient: {}
lvm.VolumeGroup.report = report
'''

PUT_AWAY = '''
from cinder_dmclone.reconcile import deactivation

deactivation.deactivate = lambda world: (
    print('deactivated', world.host.group.name) or {})
'''

# The second backend has a volume that is in use.
USED = '''
from cinder_dmclone.reconcile import deactivation

deactivation.in_use = lambda host: (
    ['volume x: in use'] if host.group.name == 'two' else [])
''' + PUT_AWAY

# A volume of the first backend cannot be put away.
STAYS = PUT_AWAY + '''
put_away = deactivation.deactivate
deactivation.deactivate = lambda world: (
    {'lv': 'in use'} if world.host.group.name == 'one' else put_away(world))
'''

# cinder-volume works on the second backend, set up for the second time.
RUNNING = '''
from cinder_dmclone import driver
from cinder_dmclone import wiring
from cinder_dmclone.cli import backends
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import deactivation

activation.activate = lambda world: {}
deactivation.in_use = lambda host: []
deactivation.deactivate = print
make_world = wiring.make_world

def serve(config, node):
    if node == 'other@second':
        service = driver.DMCloneVolumeDriver(
            configuration=config, host=node)
        service.make_world = lambda: make_world(config, node)
        for _ in range(2):
            service.do_setup(None)
    return make_world(config, node)

wiring.make_world = serve
'''

# What a command that is about one thing is given.
ABOUT = '''
from cinder_dmclone.cli import adopt
from cinder_dmclone.cli import repair_group

adopt.run = lambda lv, worlds, yes: print(
    'adopt', lv, [world.settings.node for world in worlds], yes) or 3
repair_group.run = lambda name, hosts, yes: print(
    'repair', name, [host.group.name for host in hosts], yes) or 4
'''

# cinder-volume starts when a backend has been found unused.
STARTING = '''
from cinder_dmclone import locks
from cinder_dmclone.reconcile import deactivation

deactivation.in_use = lambda host: []
deactivation.deactivate = lambda world: locks.Presence(
    world.settings.node).announce(0)
'''


class CommandLineTest(base.TestCase):

    def run_cli(self, *words: str) -> list[str]:
        done = self.call(SHOWN + MAIN, *words, 'status')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        return done.stdout.splitlines()

    def call(self, program: str,
             *words: str) -> subprocess.CompletedProcess[str]:
        return self.run_with_config(CONF, STARTED + program, *words)

    def test_backends_of_this_driver(self) -> None:
        self.assertEqual(['node1@first one 90.0', 'other@second two 90.0'],
                         self.run_cli())

    def test_metrics_of_all_backends(self) -> None:
        path = os.path.join(self.folder(), 'x.prom')
        for words in (), (path,):
            done = self.call(METRICS + MAIN, 'metrics', *words)
            self.assertEqual((2, 'node1@first: Volume group one'),
                             (done.returncode, done.stderr[:29]))
            text = done.stdout or pathlib.Path(path).read_text()
            for backend, readable in ('first', 0.0), ('second', 1.0):
                self.assertIn(f'cinder_dmclone_readable{{backend="{backend}",'
                              f'role="data"}} {readable}\n', text)

    def test_a_chosen_backend(self) -> None:
        self.assertEqual(['other@second two 90.0'],
                         self.run_cli('--backend', 'second'))

    def test_a_backend_that_fails_does_not_keep_others_from_running(
            self) -> None:
        done = self.call(LOST + MAIN, 'activate')
        self.assertEqual((1, 'activated two\n'),
                         (done.returncode, done.stdout))
        self.assertIn('node1@first: Volume group one is not found',
                      done.stderr)
        self.assertIn('after a power cut', done.stderr)
        self.assertNotIn('Traceback', done.stderr)

    def test_what_is_in_use_keeps_all_from_being_deactivated(self) -> None:
        done = self.call(USED + MAIN, 'deactivate')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('cinder-dmclone: other@second: volume x: in use. '
                      'Nothing was changed.', done.stderr)

    def test_a_running_service_is_not_deactivated(self) -> None:
        """It would bring the devices up again."""
        done = self.call(RUNNING + MAIN, 'deactivate')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('cinder-dmclone: cinder-volume works on other@second, '
                      'or another command does: stop it first. Nothing was '
                      'changed.', done.stderr)
        self.assertNotIn('Traceback', done.stderr)

    def test_a_running_service_is_not_in_the_way_of_activation(self) -> None:
        done = self.call(RUNNING + MAIN, 'activate')
        self.assertEqual((0, ''), (done.returncode, done.stderr))

    def test_a_service_does_not_start_while_it_is_deactivated(self) -> None:
        done = self.call(STARTING + MAIN, 'deactivate')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        for node in ('node1@first', 'other@second'):
            self.assertIn(f'{node}: "cinder-dmclone deactivate", or another '
                          'command that keeps cinder-volume away, has been at '
                          f'work on {node} for 0 seconds. Wait for its end, '
                          'then restart cinder-volume.', done.stderr)

    def test_what_nobody_uses_is_deactivated_if_that_is_wanted(self) -> None:
        done = self.call(USED + MAIN, 'deactivate', '--unused')
        self.assertEqual((0, 'deactivated one\ndeactivated two\n'),
                         (done.returncode, done.stdout))

    def test_a_backend_that_works_is_left_and_others_are_put_away(
            self) -> None:
        """As when the system ends and cinder-volume does not."""
        done = self.call(RUNNING + PUT_AWAY + MAIN, 'deactivate', '--unused')
        self.assertEqual((1, 'deactivated one\n'),
                         (done.returncode, done.stdout))
        self.assertIn('other@second: cinder-volume works on other@second',
                      done.stderr)
        self.assertNotIn('Traceback', done.stderr)

    def test_commands_about_one_thing(self) -> None:
        for words, code, said in (
                (('adopt', 'x'), 3,
                 "adopt x ['node1@first', 'other@second'] False\n"),
                (('repair-group', '--yes', 'vg'), 4,
                 "repair vg ['one', 'two'] True\n")):
            done = self.call(ABOUT + MAIN, *words)
            self.assertEqual((code, said, ''),
                             (done.returncode, done.stdout, done.stderr))

    def test_what_stays_is_told(self) -> None:
        done = self.call(STAYS + MAIN, 'deactivate', '--unused')
        self.assertEqual((1, 'deactivated two\n', 'lv: in use\n'),
                         (done.returncode, done.stdout, done.stderr))

    def test_no_service_starts_while_what_nobody_uses_is_deactivated(
            self) -> None:
        done = self.call(STARTING + MAIN, 'deactivate', '--unused')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('"cinder-dmclone deactivate", or another command that '
                      'keeps cinder-volume away, has been at work',
                      done.stderr)

    def test_logs_of_the_service_are_left_alone(self) -> None:
        """Run by root first, the service's user could not open them."""
        logs = self.folder()
        for options in (f'log_dir = {logs}\nlog_file = volume.log\n'
                        'use_stderr = False',
                        f'log_config_append = {logs}/missing'):
            done = self.run_with_config(
                CONF.replace('[DEFAULT]', f'[DEFAULT]\n{options}'),
                STARTED + LOGS + MAIN, 'activate')
            self.assertEqual((0, []), (done.returncode, os.listdir(logs)),
                             done.stderr)
            self.assertIn('something happened', done.stderr)

    def test_locks_that_cannot_be_had(self) -> None:
        """Without them cinder-volume might be changing the same volumes."""
        done = self.run_with_config(CONF, STARTED + REFUSED + MAIN,
                                    'activate')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('nothing was activated: the locks of cinder-volume '
                      'cannot be had', done.stderr)
        self.assertNotIn('Traceback', done.stderr)


class WrongOptionsTest(base.TestCase):
    """The first backend has an option with a value that is none."""

    config = CONF.replace('volume_group = one',
                          'volume_group = one\ndmclone_max_copies = many')
    said = 'node1@first: Value for option dmclone_max_copies '

    def call(self, program: str, *words: str,
             config: str = '') -> tuple[int, str, str]:
        done = self.run_with_config(config or self.config, program + MAIN,
                                    *words)
        self.assertNotIn('Traceback', done.stderr)
        return done.returncode, done.stdout, done.stderr

    def test_the_others_come_up(self) -> None:
        code, out, errors = self.call(STARTED + LOST, 'activate')
        self.assertEqual((1, 'activated two\n'), (code, out))
        self.assertTrue(errors.startswith(self.said), errors)
        self.assertIn('correct it in cinder.conf\n', errors)

    def test_the_others_are_shown(self) -> None:
        code, out, errors = self.call(STARTED + SHOWN, 'status', '--json')
        self.assertEqual((2, 1), (code, errors.count(self.said)))
        first, second = json.loads(out)['backends']
        self.assertEqual(('node1@first', 'other@second'),
                         (first['node'], second['node']))
        self.assertIn('dmclone_max_copies', first['error'])
        self.assertNotIn('error', second)

    def test_the_others_are_measured(self) -> None:
        code, out, errors = self.call(STARTED + METRICS, 'metrics')
        self.assertEqual((2, 1), (code, errors.count(self.said)))
        self.assertIn('readable{backend="second",role="data"} 1.0', out)

    def test_what_is_about_one_thing_is_done(self) -> None:
        for words, code, said in (
                (('adopt', 'x'), 3, "adopt x ['other@second'] False\n"),
                (('repair-group', 'vg'), 4, "repair vg ['two'] False\n")):
            found, out, errors = self.call(STARTED + ABOUT, *words)
            self.assertEqual((code, said), (found, out))
            self.assertTrue(errors.startswith(self.said), errors)

    def test_it_is_what_a_node_lacks(self) -> None:
        code, out, _ = self.call('', 'check')
        self.assertEqual(1, code)
        self.assertIn('Backend node1@first cannot be looked at: Value for '
                      'option dmclone_max_copies ', out)

    def test_there_is_no_other(self) -> None:
        for words in ('activate',), ('forget', 'x'), ('drain',):
            code, out, errors = self.call('', '--backend', 'first', *words)
            self.assertEqual((2, '', 1),
                             (code, out, errors.count(self.said)))

    def test_one_of_all_backends(self) -> None:
        code, out, errors = self.call('', 'activate', config=CONF.replace(
            '[DEFAULT]', '[DEFAULT]\nlog_color = perhaps'))
        self.assertEqual((2, ''), (code, out))
        self.assertIn('Value for option log_color ', errors)


class NotAllowedTest(base.TestCase):
    """Who runs it may not do what it needs, or loses what may."""

    def assert_refused(self, why: str, config: str, program: str,
                       *words: str) -> None:
        done = self.run_with_config(config, program + MAIN, *words)
        self.assertEqual((2, ''), (done.returncode, done.stdout), done.stderr)
        self.assertEqual(1, done.stderr.count('cinder-dmclone: '))
        self.assertRegex(done.stderr, f'(?m)^cinder-dmclone: {why}')
        self.assertNotIn('Traceback', done.stderr)

    def test_the_privileged_helper_does_not_start(self) -> None:
        for words in (('activate',), ('forget', 'x'), ('metrics',),
                      ('repair-group', 'one'), ('status',)):
            self.assert_refused(
                r'The privileged helper does not start \(false ',
                f'{CONF}[cinder_dmclone_privileged]\n'
                'helper_command = false\n', '', *words)

    def test_the_privileged_helper_ends(self) -> None:
        self.assert_refused(
            'The privileged helper has ended during report, which may be '
            'done or not: killed[.]', CONF, STARTED + '''
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm

def report(group, patient):
    raise exceptions.HelperEnded(command='report', reason='killed')

lvm.VolumeGroup.report = report
''', 'repair-group', 'one')

    def test_a_file_that_may_not_be_opened(self) -> None:
        program = STARTED + '''
import os

opened = os.open

def forbidden(path, *rest, **named):
    if {name!r} in str(path):
        raise PermissionError(13, 'Permission denied', path)
    return opened(path, *rest, **named)

os.open = forbidden
'''
        for words, name in ((('activate',), 'dmclone.key'),
                            (('repair-group', 'one'), 'node1@first.lock')):
            self.assert_refused(
                f'/.*{name}.*: Permission denied; run it as root or as the '
                'user of cinder-volume$', CONF, program.format(name=name),
                *words)
