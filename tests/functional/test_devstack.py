# SPDX-License-Identifier: Apache-2.0
"""A node runs with what the devstack plugin makes of cinder.conf."""
from __future__ import annotations

import pathlib
import re
import tempfile
from collections.abc import Callable

from lab import FAULTY_DRIVER, config, look
from lab.volume import DRIVER
from tests.devstack import machine
from tests.functional import base
from tests.functional import environment

CONF = '/etc/cinder/cinder.conf'


class DevstackTest(base.FunctionalTest):
    """Node 2 is one of devstack's; node 1 is as ever."""

    def plugin_section(self) -> dict[str, str]:
        """The section of the backend, for node 2."""
        with tempfile.TemporaryDirectory(prefix='devstack-') as place:
            _, stack = machine.run(
                pathlib.Path(place), 'stack', services='c-vol',
                HOST_IP=self.node2.data_address)
            self.assertEqual(0, stack.status, stack.output)
            return stack.cinder_conf[config.BACKEND]

    def rename_group(self, old: str, new: str) -> None:
        """Stop the service of node 2, and let its volume group be another."""
        self.node2.volume.stop()
        self.node2.run(f'vgrename -q {old} {new} && sync')

    def left_of(self, lv: str) -> Callable[[], int]:
        """How many bytes are not zero now where an LV of node 2 is."""
        options = '--noheadings --nosuffix --units b -o'
        disk, first, last, extent = re.split('[ :-]+', self.node2.run(
            f'lvs {options} seg_pe_ranges,vg_extent_size {lv}'
            ).stdout.strip())
        start = self.node2.run(f'pvs {options} pe_start {disk}').stdout
        skip = int(start) + int(first) * int(extent)
        count = (int(last) - int(first) + 1) * int(extent)

        def look() -> int:
            return int(self.node2.run(
                f'dd if={disk} iflag=direct,skip_bytes,count_bytes bs=1M '
                f'skip={skip} count={count} status=none | tr -d "\\0" | '
                'wc -c', timeout=base.LONG_SECONDS).stdout)
        return look

    def test_a_volume_moves(self) -> None:
        section = self.plugin_section()
        self.assertEqual(DRIVER, section['volume_driver'])
        group = section['volume_group']
        # The lab's driver is the product's with fault points, and says how
        # large a GiB is.
        section |= {'volume_driver': FAULTY_DRIVER,
                    'lab_gib': str(environment.gib())}
        text = config.text({**machine.sections(self.node2.read(CONF)),
                            config.BACKEND: section})
        self.rename_group(look.GROUP, group)
        self.addCleanup(self.rename_group, group, look.GROUP)
        self.node2.write(CONF, text)
        self.node2.volume.start(wait=True)
        volume, image = self.filled(self.node2)
        old = self.row(volume).lv
        self.assertIn(f'{group}/volume-{old}', self.node2.run(
            'lvs --noheadings -o vg_name,lv_name --separator /').stdout)
        written = self.left_of(f'{group}/volume-{old}')
        self.assertNotEqual(0, written())
        at = self.attach(volume, self.node1)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.wait('end of the old copy', lambda: f'volume-{old}' not in (
            self.node2.run('lvs --noheadings -o lv_name').stdout))
        # It is overwritten, as Cinder's default (volume_clear) has it.
        self.assertEqual(0, written())
