# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone metrics``: for a node_exporter, or to have a look."""

from __future__ import annotations

import sys
import typing

import prometheus_client

from cinder_dmclone.cli.errors import fail
from cinder_dmclone.metrics import collector
from cinder_dmclone.ports import Host


def run(hosts: typing.Iterable[Host], path: str | None) -> int:
    """Print what Prometheus would be told of these backends.

    :param path: a file that is replaced as a whole; standard output if None
    :returns: 0, or 2 if a backend could not be read or the file written
    """
    found = collector.Collector(*map(collector.Source, hosts), patient=True)
    registry = prometheus_client.CollectorRegistry()
    registry.register(found)
    try:
        if path:
            prometheus_client.write_to_textfile(path, registry)
        else:
            print(prometheus_client.generate_latest(registry).decode(),
                  end='')
    except OSError as error:
        return fail(f'{path or "standard output"}: {error.strerror}')
    for node, why in found.failed.items():
        print(f'{node}: {why}', file=sys.stderr)
    return 2 if found.failed else 0
