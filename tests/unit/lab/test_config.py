# SPDX-License-Identifier: Apache-2.0
"""Configuration files the lab writes."""
from __future__ import annotations

import configparser
import pathlib
import subprocess
import sys
import tempfile
import unittest

from lab import config
from lab.errors import LabError
from lab.lab import Lab

# The command oslo-config-validator. Cinder's list of options imports a library
# of one of its backup drivers, which a lab does not have.
VALIDATE = '''
import sys
from unittest import mock

sys.modules['googleapiclient'] = mock.MagicMock()
from oslo_config import validator

sys.exit(validator.main())
'''
NAMESPACES = ('castellan.config', 'cinder', 'cinder_dmclone',
              'keystonemiddleware.auth_token', 'oslo.concurrency', 'oslo.db',
              'oslo.log', 'oslo.messaging', 'oslo.service.wsgi')


class ConfigTest(unittest.TestCase):

    def _node(self, **backend: object) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(interpolation=None,
                                           default_section='none')
        parser.read_string(config.node(
            'node1', '10.0.0.1', '10.0.1.1', pathlib.Path('/venv'),
            'some.Driver', backend, {'debug': True}))
        return parser

    def test_node_has_one_backend_with_the_driver(self) -> None:
        conf = self._node()
        backend = conf[conf['DEFAULT']['enabled_backends']]
        self.assertEqual('some.Driver', backend['volume_driver'])
        self.assertEqual('10.0.1.1', backend['target_ip_address'])
        self.assertEqual('node1', conf['DEFAULT']['host'])

    def test_every_option_is_known(self) -> None:
        """By oslo.config's own validator, as deployment tools run it.

        It knows the sections of backends as the one of what they inherit.
        """
        conf = config.node(
            'node1', '10.0.0.1', '10.0.1.1', pathlib.Path('/venv'),
            'some.Driver', {'dmclone_region_size_kib': 64}, {}, {
                'cinder_dmclone_privileged': {'helper_command': 'sudo x'}})
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = pathlib.Path(folder) / 'cinder.conf'
        path.write_text(conf.replace(f'[{config.BACKEND}]',
                                     '[backend_defaults]'))
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', VALIDATE, '--input-file',
             path, '--fatal-warnings', *(
                 word for name in NAMESPACES
                 for word in ('--namespace', name))],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(0, done.returncode, done.stdout)

    def test_options_of_a_test_win(self) -> None:
        conf = self._node(volume_group='other', dmclone_x=5)
        self.assertEqual('other', conf[config.BACKEND]['volume_group'])
        self.assertEqual('5', conf[config.BACKEND]['dmclone_x'])
        self.assertEqual('True', conf['DEFAULT']['debug'])

    def test_sudo_allows_rootwrap_with_our_configuration_only(self) -> None:
        rules = [line for line in
                 config.sudoers(pathlib.Path('/venv')).splitlines()
                 if 'NOPASSWD' in line]
        self.assertEqual(
            ['cinder ALL=(root) NOPASSWD: /venv/bin/cinder-rootwrap '
             '/etc/cinder/rootwrap.conf *'], rules)

    def test_names_that_are_no_file_names_are_refused(self) -> None:
        for name in ('../x', 'A', '-x', 'x' * 21):
            with self.assertRaises(LabError, msg=name):
                Lab(name)
