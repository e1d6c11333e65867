# SPDX-License-Identifier: Apache-2.0
"""Glance in a lab, with a store of files; a test that needs it starts it."""
from __future__ import annotations

from collections.abc import Mapping

from lab import config
from lab.database import GLANCE
from lab.network import CONTROLLER
from lab.rest import KEYSTONE
from lab.services import GLANCE_PORT, WebService

# Where Glance has directories of its own: images, and what it never uses here.
_STORES = ('images', 'os_glance_staging_store', 'os_glance_tasks_store')


class Glance(WebService):
    """glance-api."""

    name = application = 'glance'
    port = GLANCE_PORT

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(),
                'OS_GLANCE_CONFIG_DIR': str(self.directory)}

    def prepare(self) -> None:
        super().prepare()
        for store in _STORES:
            (self.directory / store).mkdir(exist_ok=True)
        (self.directory / 'glance-api.conf').write_text(config.text({
            'DEFAULT': {
                'use_stderr': True, 'bind_host': CONTROLLER,
                'enabled_backends': 'images:file',
                'enabled_import_methods': '[]'},
            'database': {'connection': GLANCE},
            'glance_store': {'default_backend': 'images'},
            'keystone_authtoken': {
                'www_authenticate_uri': KEYSTONE, **config.user('glance')},
            'paste_deploy': {
                'flavor': 'keystone',
                'config_file': f'{self._venv}/etc/glance/'
                               'glance-api-paste.ini'},
            'oslo_concurrency': {'lock_path': self.directory / 'lock'},
            **{store: {'filesystem_store_datadir': self.directory / store}
               for store in _STORES},
        }))
