# SPDX-License-Identifier: Apache-2.0
"""What tools and readers are told of the options is what there is."""

from __future__ import annotations

import io
import os
import re
import unittest
from unittest import mock

from cinder import objects
from oslo_config import cfg
from oslo_config import generator

from cinder_dmclone import driver
from cinder_dmclone import opts
from cinder_dmclone import privileged
from tests.unit import test_packaging

ROOT = test_packaging.ROOT
SAMPLE = ROOT / 'etc/cinder-dmclone.conf.sample'

objects.register_all()


class OptionsTest(unittest.TestCase):

    # The privileged helper has the options that its library gives it.
    @unittest.skipUnless(os.environ.get('DMCLONE_CINDER', '29') == '29',
                         'the sample is that of the newest release')
    def test_sample_is_current(self) -> None:
        """``tox -e genconfig`` writes it."""
        conf = cfg.ConfigOpts()
        generator.register_cli_opts(conf)
        conf(['--config-file', str(
            ROOT / 'etc/oslo-config-generator/cinder-dmclone.conf')])
        fresh = io.StringIO()
        generator.generate(conf, output_file=fresh)
        self.assertEqual(SAMPLE.read_text(), fresh.getvalue())

    def test_groups_are_those_in_which_they_are_read(self) -> None:
        told = dict(opts.list_opts())
        self.assertEqual({'backend_defaults', privileged.SECTION}, set(told))
        for group, options in told.items():
            for option in options:
                self.assertIn(option.dest, cfg.CONF[group])

    def test_defaults_of_the_helper_are_ours(self) -> None:
        for option in dict(opts.list_opts())[privileged.SECTION]:
            self.assertEqual(cfg.CONF[privileged.SECTION][option.dest],
                             option.default, option.name)

    def test_one_cached_volume_for_all_nodes(self) -> None:
        """Releases before 29 look once, at the driver that they have made."""
        for wanted in (True, False):
            made = driver.DMCloneVolumeDriver(configuration=mock.MagicMock(
                dmclone_clone_across_nodes=wanted))
            self.assertIs(wanted, made.capabilities['clone_across_pools'])

    def test_driver_names_what_it_honours(self) -> None:
        """The same as the page does: Cinder's documents are made from it."""
        page = (ROOT / 'doc/source/configuration/index.rst').read_text()
        text, = re.findall(r'the driver honours(.*?)\. Its', page, re.DOTALL)
        named = {option.name for option in
                 driver.DMCloneVolumeDriver.get_driver_options()}
        self.assertEqual(set(re.findall('``(.*?)``', text)),
                         named - {option.name for option in opts.dmclone_opts})
