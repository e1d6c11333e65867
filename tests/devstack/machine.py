# SPDX-License-Identifier: Apache-2.0
"""A machine on which devstack runs the plugin, as far as it sees one."""
from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping

from oslo_config import cfg

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STAND_IN = HERE / 'stand-in'
DEST = '/run/machine/stack'
HOST_IP = '192.0.2.11'
SECONDS = 120
# What devstack's stackrc and GetDistro say of an Ubuntu.
STACKRC = {
    'os_PACKAGE': 'deb', 'os_VENDOR': 'Ubuntu',
    'GLOBAL_VENV': 'True', 'DEVSTACK_VENV': f'{DEST}/data/venv',
    'VOLUME_BACKING_FILE_SIZE': '24G', 'REGION_NAME': 'RegionOne',
    'ENABLE_DEBUG_LOG_LEVEL': 'True', 'SYSLOG': 'False',
    'SERVICE_GRACEFUL_SHUTDOWN_TIMEOUT': '5',
    'GLANCE_URL': 'http://192.0.2.11/image'}

Sections = dict[str, dict[str, str]]


class NoMachine(Exception):
    """The mount namespace could not be made."""


@dataclasses.dataclass(frozen=True)
class Left:
    """What a script of devstack's has left.

    :ivar place: with copies of files, see machine.sh
    """

    script: str
    place: pathlib.Path

    def _read(self, name: str) -> str:
        return (self.place / name).read_text()

    @property
    def status(self) -> int:
        """The script's exit status."""
        return int(self._read('status'))

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self._read('output')

    @property
    def commands(self) -> list[str]:
        """The commands that would have changed the machine."""
        return self._read('commands').splitlines()

    @property
    def groups(self) -> list[str]:
        """The volume groups that there are."""
        return self._read('groups').splitlines()

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """Files below /etc and $DEST/data, with their texts."""
        return {str(path.relative_to(self.place)): _text(path)
                for folder in ('etc', 'stack/data')
                for path in sorted((self.place / folder).rglob('*'))
                if path.is_symlink() or path.is_file()}

    @property
    def cinder_conf(self) -> Sections:
        """cinder.conf, as oslo.config reads it."""
        return sections(self._read('etc/cinder/cinder.conf'))


def _text(path: pathlib.Path) -> str:
    if path.is_symlink():
        return f'-> {path.readlink()}'
    # The file behind a volume group is large, and empty.
    return '' if path.stat().st_blocks == 0 else path.read_text()


def sections(text: str) -> Sections:
    """A configuration file of oslo.config; the last of equal keys counts."""
    with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
        file.write(text)
        file.flush()
        found: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(file.name, found).parse()
    return {name: {key: values[-1] for key, values in options.items()}
            for name, options in found.items()}


def run(place: pathlib.Path, *scripts: str,
        services: str = 'c-api,c-sch,c-vol', plugin: bool = True,
        machine: Mapping[str, str] | None = None, local_conf: str = '',
        **localrc: str) -> list[Left]:
    """Run scripts of devstack's one after the other on a new machine.

    :param place: an empty directory
    :param services: those of this host
    :param plugin: whether local.conf names it
    :param local_conf: lines of local.conf
    :param machine: how it differs from others, see machine.sh
    :param localrc: further variables of local.conf
    :returns: what was there before, and after each script
    :raises NoMachine: if there can be none, which takes root and Linux
    """
    variables = {
        'DEST': DEST, 'DATA_DIR': f'{DEST}/data',
        'STACK_USER': 'stack', 'HOST_IP': HOST_IP,
        'ENABLED_SERVICES': services, **STACKRC, **localrc}
    lines = [f'{name}={shlex.quote(value)}'
             for name, value in variables.items()]
    if plugin:
        lines.append('enable_plugin cinder-dmclone https://nowhere')
    (place / 'localrc').write_text('\n'.join([*lines, local_conf]))
    words = ['unshare', '--mount', '--propagation', 'private', '--net',
             'bash', str(HERE / 'machine.sh'), str(place), *scripts]
    done = subprocess.run(
        words, env={**_environment(), **(machine or {})}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=SECONDS)
    if done.returncode:
        raise NoMachine(f'{shlex.join(words)}: {done.stdout}')
    return [Left(script, place / f'{number}-{script}')
            for number, script in enumerate(['boot', *scripts])]


def _environment() -> Mapping[str, str]:
    return {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C.UTF-8',
            'HOME': '/nonexistent', 'PYTHON': sys.executable,
            'PYTHONPATH': str(ROOT), 'PYTHONDONTWRITEBYTECODE': '1',
            'REPOSITORY': str(ROOT), 'DM_RULES': '55-dm.rules',
            # Of the Cinder beside which the tests run.
            'CINDER_FILES': f"{sysconfig.get_path('data')}/etc/cinder",
            'TOP_DIR': os.environ.get('DEVSTACK_DIR') or str(STAND_IN)}
