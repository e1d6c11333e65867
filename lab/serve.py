# SPDX-License-Identifier: Apache-2.0
"""Run one of the control plane's WSGI applications.

Usage: serve.py keystone|cinder ADDRESS PORT [arguments of the service].
Under /compute every answer is 404: there is no Nova in the lab, and "no
such server" is what lets a user delete an attachment in Cinder.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import waitress

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


def no_compute(application: Application) -> Application:
    """Answer for the compute service, pass the rest on."""
    def dispatch(environ: Environ,
                 start: Callable[..., Any]) -> Iterable[bytes]:
        if environ['PATH_INFO'].startswith('/compute'):
            start('404 Not Found', [('Content-Type', 'application/json')])
            return [b'{"itemNotFound": {"code": 404, '
                    b'"message": "there are no servers in this lab"}}']
        return application(environ, start)
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
