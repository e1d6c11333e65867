# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration of the release notes."""

extensions = [
    'openstackdocstheme',
    'reno.sphinxext',
]
project = 'cinder-dmclone release notes'
copyright = 'the cinder-dmclone authors'
master_doc = 'index'
html_theme = 'openstackdocs'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
