# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration."""

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxext',
]
project = 'cinder-dmclone'
copyright = 'the cinder-dmclone authors'
master_doc = 'index'
pygments_style = 'native'
html_theme = 'openstackdocs'
# Not hosted with OpenStack's own documents.
openstackdocs_auto_name = False
openstackdocs_auto_version = False
