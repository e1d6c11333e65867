# SPDX-License-Identifier: Apache-2.0
"""A volume is filled with an image: the service itself writes it."""

from __future__ import annotations

import typing

from cinder_dmclone.service import images
from tests.simulation import server

if typing.TYPE_CHECKING:
    from tests.simulation import cloud as cloud_module
    from tests.simulation import control
    from tests.simulation import truth as truth_module


def fill(api: control.Api, truth: truth_module.Truth) -> None:
    """``copy_image_to_volume``"""
    row = api.begin('image', 'downloading')

    def manager(process: cloud_module.Process) -> None:
        try:
            with images.local_path(process.service, api.volume) as path:
                _copy(process, truth, path)
        finally:
            # create_volume.py saves it whatever has happened since, but for a
            # deletion (volume_update of cinder/db/api.py).
            if process.alive and not row['deleted']:
                row['status'] = 'available'
    api.reset_after('image', manager, status='available')


def _copy(process: cloud_module.Process, truth: truth_module.Truth,
          path: str) -> None:
    writer = server.Server(truth, process.node, path)
    try:
        for number in range(0, len(truth.regions), 3):
            writer.write(number)
            truth.cloud.scheduler.sleep(1.0)
            process.check_alive()
        writer.flush()
    finally:
        writer.close()
