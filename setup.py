# SPDX-License-Identifier: Apache-2.0
import pathlib
import re

import setuptools


def long_description() -> str:
    """The README as an index of packages can show it.

    It has the text alone: no picture, and no page that a link leads to.
    """
    text = pathlib.Path('README.md').read_text(encoding='utf-8')
    text = re.sub(r'^!\[[^]]*]\([^)]*\)\n+', '', text, flags=re.MULTILINE)
    return re.sub(r'\[([^]]*)]\((doc/[^)]*)\)', r'\1 (`\2`)', text)


setuptools.setup(setup_requires=['pbr>=6.1.1'], pbr=True,
                 long_description=long_description())
