# SPDX-License-Identifier: Apache-2.0
"""Run one of the control plane's WSGI applications.

Usage: serve.py keystone|cinder ADDRESS PORT [arguments of the service].
There is no Nova in the lab.  Under /compute every name is a server, because
the openstack command looks it up before it makes an attachment; anything
else is 404: "not attached to that server" is what lets a user delete an
attachment in Cinder.
"""
from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import waitress

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


def no_compute(application: Application) -> Application:
    """Answer for the compute service, pass the rest on."""
    def dispatch(environ: Environ,
                 start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ['PATH_INFO']
        if not path.startswith('/compute'):
            return application(environ, start)
        status, body = compute(path)
        start(status, [('Content-Type', 'application/json')])
        return [json.dumps(body).encode()]
    return dispatch


def load(service: str) -> Application:
    """The application of a service; reads sys.argv for its options."""
    if service == 'keystone':
        from keystone.wsgi import api
        return no_compute(api.application)
    from cinder.wsgi import wsgi
    return wsgi.initialize_application()


def main() -> None:
    service, address, port = sys.argv[1:4]
    sys.argv[1:4] = []
    waitress.serve(load(service), host=address, port=int(port), threads=8)


if __name__ == '__main__':
    main()
