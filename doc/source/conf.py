# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration."""

from importlib import metadata

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxext',
]
project = 'cinder-dmclone'
copyright = 'the cinder-dmclone authors'
# That of the tag, or of what comes after it.
version = release = metadata.version(project)
master_doc = 'index'
pygments_style = 'native'
html_theme = 'openstackdocs'
# Not hosted with OpenStack's own documents.
openstackdocs_auto_name = False
openstackdocs_auto_version = False
