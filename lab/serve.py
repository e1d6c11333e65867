# SPDX-License-Identifier: Apache-2.0
"""Run one of the control plane's WSGI applications.

Usage: serve.py keystone|cinder|glance|nova|placement ADDRESS PORT
[arguments of the service].

More services are played by Keystone's process.  Under /compute there is
something for a lab without Nova: every name is a server, because the
openstack command looks it up before it makes an attachment; anything else is
404: "not attached to that server" is what lets a user delete an attachment in
Cinder.  The Neutron under /network has nothing.
"""
from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import waitress

# Of an image, in bytes: more than a lab has room for.
_LARGEST = 1 << 40
Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


def server(name: str) -> dict[str, str]:
    """A server; a name that is no uuid always gives the same one."""
    try:
        found = uuid.UUID(name)
    except ValueError:
        found = uuid.uuid5(uuid.NAMESPACE_DNS, name)
    return {'id': str(found), 'name': name, 'status': 'ACTIVE'}


def compute(path: str) -> tuple[str, dict[str, Any]]:
    """Status and body of an answer of the compute service."""
    match = re.fullmatch('/compute/v2.1/servers/([^/]+)', path)
    if not match:
        return '404 Not Found', {'itemNotFound': {
            'code': 404, 'message': 'there is no Nova in this lab'}}
    if match[1] == 'detail':
        return '200 OK', {'servers': []}
    return '200 OK', {'server': server(match[1])}


def empty(path: str) -> tuple[str, dict[str, Any]]:
    """Status and body of a service that has nothing: empty lists."""
    if re.fullmatch('/[a-z]+/?', path):
        link = {'rel': 'self', 'href': f'{path.rstrip("/")}/v2.0'}
        return '200 OK', {'versions': [
            {'id': 'v2.0', 'status': 'CURRENT', 'links': [link]}]}
    if re.fullmatch('/network/v2.0/quotas/[^/]+', path):
        # Nova asks before it makes a server that nobody said a network for.
        return '200 OK', {'quota': {}}
    match = re.fullmatch(r'/[a-z]+/v2(?:\.0)?/([a-z-]+)', path)
    if not match:
        return '404 Not Found', {'message': f'there is no {path}'}
    return '200 OK', {match[1].replace('-', '_'): []}


_PLAYED = {'/compute': compute, '/network': empty}


def played(application: Application) -> Application:
    """Answer for the services that are played, pass the rest on."""
    def dispatch(environ: Environ,
                 start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ['PATH_INFO']
        for prefix, answer in _PLAYED.items():
            if path.startswith(prefix):
                status, body = answer(path)
                start(status, [('Content-Type', 'application/json')])
                return [json.dumps(body).encode()]
        return application(environ, start)
    return dispatch


def load(service: str) -> Application:
    """The application of a service; reads sys.argv for its options."""
    if service == 'keystone':
        from keystone.wsgi import api
        return played(api.application)
    if service == 'nova':
        from nova.wsgi import osapi_compute
        return osapi_compute.application
    if service == 'placement':
        from placement.wsgi import api
        return api.application
    if service == 'glance':
        from glance.wsgi import api
        return api.application
    from cinder.wsgi import wsgi
    return wsgi.initialize_application()


def main() -> None:
    service, address, port = sys.argv[1:4]
    sys.argv[1:4] = []
    # What a proxy says of its clients is for the application to believe.
    waitress.serve(load(service), host=address, port=int(port), threads=8,
                   clear_untrusted_proxy_headers=False,
                   max_request_body_size=_LARGEST)


if __name__ == '__main__':
    main()
