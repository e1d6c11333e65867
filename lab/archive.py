# SPDX-License-Identifier: Apache-2.0
"""Packages of a newer Debian suite, unpacked beside those of the machine."""
from __future__ import annotations

import pathlib
import re
import tempfile

from lab import install
from lab.errors import LabError
from lab.processes import run

SUITE = 'forky'
_KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'
_SOURCES = f'''\
Types: deb
URIs: http://deb.debian.org/debian
Suites: {SUITE}
Components: main
Architectures: amd64
Signed-By: {_KEYRING}
'''
# Of the machine's apt: a release that this archive does not have, and hooks,
# some of which remove what another apt is about to install.
_NOT_OURS = ('APT::Default-Release', 'APT::Update::Pre-Invoke',
             'APT::Update::Post-Invoke', 'APT::Update::Post-Invoke-Success')
# Relations that are no need of a package.
_OPTIONAL = ('recommends', 'suggests', 'conflicts', 'breaks', 'replaces',
             'enhances')
# A name at the beginning of a line of apt-cache; those in <> are virtual.
_NAME = re.compile(r'^[a-z0-9][a-z0-9.+-]+(?=$|:)', re.M)


def unpack(package: str, tree: pathlib.Path) -> str:
    """Unpack a package of the suite with all it depends on.

    apt verifies the archive's signature. The sources, lists and packages of
    the machine stay as they are.

    :param tree: the directory that stands for "/"; must exist
    :return: the version of the package
    :raises LabError: if it cannot be had; one line
    """
    install.ensure_packages(('debian-archive-keyring',))
    with tempfile.TemporaryDirectory(dir=install.cache_directory()) as name:
        apt = _Apt(pathlib.Path(name))
        apt.run('apt-get', 'update', '-qq')
        needed = needs(apt.run(
            'apt-cache', 'depends', '--recurse',
            *(f'--no-{relation}' for relation in _OPTIONAL), package))
        apt.run('apt-get', 'download', '-qq', *needed)
        archives = sorted(apt.directory.glob('*.deb'))
        for path in archives:
            run('dpkg-deb', '--extract', str(path), str(tree))
        found, = apt.directory.glob(f'{package}_*.deb')
        return run('dpkg-deb', '--field', str(found), 'Version').stdout.strip()


def configuration(directory: pathlib.Path) -> str:
    """apt.conf, read after the machine's own; all is in ``directory``."""
    options = {
        'Dir::Etc::sourcelist': directory / 'debian.sources',
        'Dir::Etc::sourceparts': '/dev/null',
        'Dir::Etc::preferences': '/dev/null',
        'Dir::Etc::preferencesparts': '/dev/null',
        'Dir::State::lists': directory / 'lists',
        'Dir::State::status': directory / 'status',
        'Dir::Cache': directory / 'cache',
        'APT::Architecture': 'amd64',
        # A list that cannot be fetched is an error.
        'APT::Update::Error-Mode': 'any',
        # The user _apt cannot see what root alone can.
        'APT::Sandbox::User': 'root',
        'Acquire::Languages': 'none',
        'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled': 'false',
        'Acquire::Retries': '2',
        'Acquire::http::Timeout': '20'}
    return ''.join([*(f'#clear {name};\n' for name in _NOT_OURS),
                    *(f'{name} "{value}";\n'
                      for name, value in options.items())])


def needs(text: str) -> list[str]:
    """The real packages in what apt-cache depends --recurse prints."""
    return sorted(set(_NAME.findall(text)))


class _Apt:
    """apt with everything of its own in ``directory``."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        for name in ('lists/partial', 'cache/archives/partial'):
            (directory / name).mkdir(parents=True)
        (directory / 'status').touch()
        (directory / 'debian.sources').write_text(_SOURCES)
        (directory / 'apt.conf').write_text(configuration(directory))

    def run(self, program: str, *words: str) -> str:
        """What a command of apt prints; its first error is LabError."""
        # apt-get download writes where it is.
        result = run('env', '-C', str(self.directory), 'LC_ALL=C', program,
                     f'--config-file={self.directory}/apt.conf', *words,
                     check=False, timeout=1800)
        if result.returncode:
            raise LabError(f'{program} {words[0]} from Debian {SUITE}: '
                           f'{first_error(result.stderr)}')
        return result.stdout


def first_error(said: str) -> str:
    """The first thing that apt calls an error."""
    found = [line for line in said.splitlines() if line.startswith('E: ')]
    return found[0][3:].strip() if found else 'failed'
