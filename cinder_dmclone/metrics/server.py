# SPDX-License-Identifier: Apache-2.0
"""Answers Prometheus, one request at a time."""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
import time
import typing

from oslo_log import log as logging
import prometheus_client

from cinder_dmclone.location import NodeName
from cinder_dmclone.metrics import collector

LOG = logging.getLogger(__name__)

# So long whoever has connected may keep others waiting, in seconds.
_PATIENCE = 5.0
# Before the next try, if no connection can be taken.
_PAUSE = 1.0


class _Handler(prometheus_client.MetricsHandler):
    timeout = _PATIENCE


class Server(socketserver.TCPServer):
    """Waits for connections without ever waking up in between.

    Whoever asks often waits for himself: no two looks are taken at once.
    """

    allow_reuse_address = True

    def __init__(self, address: str, port: int,
                 found: collector.Collector) -> None:
        """
        :raises OSError: if it cannot listen there
        """
        registry = prometheus_client.CollectorRegistry()
        registry.register(found)
        self.address_family, _, _, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE)[0]
        super().__init__((str(place[0]), port), _Handler.factory(registry))

    def run(self) -> None:
        """Answer until the socket is closed.

        ``serve_forever`` looks around all the time.
        """
        while self.socket.fileno() >= 0:
            try:
                request, address = self.get_request()
            except OSError as error:
                LOG.warning('No connection of Prometheus can be taken: '
                            '%s', error)
                time.sleep(_PAUSE)
                continue
            try:
                self.process_request(request, address)
            except Exception:
                self.handle_error(request, address)
                self.shutdown_request(request)

    def handle_error(self, request: typing.Any,
                     client_address: typing.Any) -> None:
        """The next one is answered in any case."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            LOG.debug('%s has gone: %s', client_address, error)
        else:
            LOG.exception('Prometheus got no answer.')


def start(node: NodeName, address: str, port: int,
          found: collector.Collector) -> Server | None:
    """Answer in a thread; volumes are served even if that cannot be.

    :param node: ``host@backend``
    """
    try:
        server = Server(address, port, found)
    except OSError as error:
        LOG.error('%(node)s cannot be watched: nothing can listen at '
                  '%(address)s, port %(port)s (%(error)s). Each backend of a '
                  'node needs a dmclone_metrics_port of its own, in its own '
                  'section of cinder.conf. Volumes are served all the same.',
                  {'node': node, 'address': address, 'port': port,
                   'error': error})
        return None
    threading.Thread(target=server.run, daemon=True,
                     name='dmclone-metrics').start()
    return server
