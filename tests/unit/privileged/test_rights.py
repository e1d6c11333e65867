# SPDX-License-Identifier: Apache-2.0
"""The daemon itself, with the rights that it keeps, where nothing is root's.

In a mount namespace ``/etc/iscsi`` is as Kolla's cinder_volume container has
it, and open-iscsi is the one that is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import unittest

import ddt

from tests.unit import base

# kolla/docker/cinder/cinder-volume/extend_start.sh; ids as in Kolla's images.
_PROGRAM = '''
import glob, os, subprocess, sys
from oslo_config import cfg
from oslo_privsep import priv_context
from cinder_dmclone import exceptions, privileged
from cinder_dmclone.privileged import iscsi

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'

def sh(command):
    sys.stdout.flush()
    subprocess.run(['sh', '-ec', command], check=True)

def own():
    sh('chown -Rh 42407:42400 /etc/iscsi; chmod 2775 /etc/iscsi')

def write(secret):
    iscsi.write_record(IQN, '192.0.2.1:3260', 'user', secret)

def record():
    path, = glob.glob(f'/etc/iscsi/nodes/{IQN}/*/default')
    return path

for folder in '/etc/iscsi', '/run/lock':
    sh('mount -t tmpfs tmpfs ' + folder)
with open('/etc/iscsi/initiatorname.iscsi', 'x') as file:
    file.write('InitiatorName=iqn.1993-08.org.debian:01:test')
    os.fchmod(file.fileno(), 0o600)
own()
cfg.CONF([], project='test', default_config_files=[])
privileged.context.start(priv_context.Method.FORK)
'''


def _able() -> bool:
    """Whether this may have file systems of its own, and open-iscsi."""
    return bool(shutil.which('iscsiadm')) and not subprocess.run(
        ['unshare', '-m', 'mount', '-t', 'tmpfs', 'tmpfs', '/run/lock'],
        stderr=subprocess.DEVNULL).returncode


@ddt.ddt
@unittest.skipUnless(_able(), 'needs root and open-iscsi')
class RightsTest(base.TestCase):

    def run_with_daemon(self, program: str) -> str:
        """What a program prints that calls the daemon in such a world."""
        found = subprocess.run(
            ['unshare', '-m', sys.executable, '-W', 'ignore', '-c',
             _PROGRAM + textwrap.dedent(program)], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((0, ''), (found.returncode, found.stderr))
        return found.stdout

    @ddt.data('', 'own()')
    def test_records_of_another_user(self, own: str) -> None:
        """Kolla gives away the directory, and what is in it at that time."""
        said = self.run_with_daemon(f'''
            print(iscsi.initiator_name())
            for secret in 'first', 'second':
                write(secret)
                {own or 'pass'}
                print(oct(os.stat(record()).st_mode & 0o777))
                sh('sed -n "s/^node.session.auth.password = //p" ' + record())
            iscsi.delete_record(IQN)
            sh('find /etc/iscsi -mindepth 2; ls -A /etc/iscsi')
            ''')
        self.assertEqual(
            ['iqn.1993-08.org.debian:01:test', '0o600', 'first', '0o600',
             'second', 'initiatorname.iscsi', 'nodes', 'static'],
            said.split())

    def test_damaged_records_of_another_user(self) -> None:
        """Which iscsiadm overlooks."""
        self.assertEqual('', self.run_with_daemon('''
            write('secret')
            open(record(), 'w').close()
            own()
            iscsi.delete_record(IQN)
            sh('find /etc/iscsi -mindepth 2')
            '''))

    def test_what_their_owner_has_put_there_is_not_followed(self) -> None:
        self.assertEqual('untouched\n', self.run_with_daemon('''
            sh('echo untouched >/run/lock/victim')
            os.symlink('/run/lock/victim', f'/etc/iscsi/.{IQN}')
            own()
            write('secret')
            sh('cat /run/lock/victim')
            '''))

    def test_a_file_system_that_cannot_be_written(self) -> None:
        said = self.run_with_daemon('''
            sh('mount -o remount,ro /etc/iscsi')
            try:
                write('secret')
            except exceptions.CommandFailed as error:
                print(error.msg)
            ''')
        self.assertIn('iscsiadm', said)
        self.assertNotIn('secret', said)
