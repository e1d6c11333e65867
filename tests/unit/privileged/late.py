# SPDX-License-Identifier: Apache-2.0
"""A process that asks a helper of its own for something; see test_helper."""

from __future__ import annotations

import pathlib
import sys
import threading

from oslo_config import cfg

from cinder_dmclone.privileged import helper
from lab import processes

SECTION = 'dmclone_test_late'

context = helper.Context('tests', cfg_section=SECTION,
                         pypath=f'{__name__}.context', capabilities=[])


@context.entrypoint
def touch(path: str) -> None:
    """What can be seen of a call."""
    pathlib.Path(path).touch()


def main(command: str, path: str) -> None:
    """Start the helper, and ask it when told to.

    :param command: that which starts it
    :param path: a file that it is asked to make
    """
    cfg.CONF([], project='dmclone-test', default_config_files=[])
    cfg.CONF.set_override('helper_command', command, SECTION)
    channel = context.running()
    print('started', flush=True)
    sys.stdin.readline()
    asking = threading.Thread(target=touch, args=(path,))
    asking.start()
    processes.wait_for('a request', lambda: bool(channel.outstanding_msgs),
                       interval=0.01)
    print('asked', flush=True)
    asking.join()
    print('answered', flush=True)
