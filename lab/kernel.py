# SPDX-License-Identifier: Apache-2.0
"""Which kernel the nodes of a lab run.

``fast`` is the user-mode-linux of a newer Debian: with the host's seccomp it
runs system calls and starts processes five to ten times faster than those of
today's distributions, which stop each process with ptrace. ``distribution``
is the machine's own package.
"""
from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lab import archive, install
from lab.errors import LabError
from lab.processes import Group, run, wait_for

VARIABLE = 'DMCLONE_KERNEL'
FAST, DISTRIBUTION = NAMES = ('fast', 'distribution')
_PACKAGE = 'user-mode-linux'
_TRIAL = pathlib.Path(__file__).with_name('kernel-trial')
# A line of it; a console ends lines with more than a line feed.
_SAID = re.compile(r'^kernel-trial: (.*?)\s*$', re.M)
# Where a node, whose root is the machine's, mounts those of its kernel.
_MODULES = '/lib/modules'
_BOOT_ID = pathlib.Path('/proc/sys/kernel/random/boot_id')
# So long nobody tries again what failed, in seconds.
_PATIENCE = 24 * 3600


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A user-mode-linux kernel.

    :ivar name: one of NAMES
    :ivar version: of its package
    :ivar modules: the directory of its modules
    :ivar arguments: what its command line has beside a node's own
    """

    name: str
    version: str
    binary: pathlib.Path
    modules: pathlib.Path
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ' '.join([f'{self.name} ({_PACKAGE} {self.version}',
                         *self.arguments]) + ')'

    def command(self) -> list[str]:
        """The beginning of a command line that starts it."""
        return [str(self.binary), *self.arguments, f'MODULES={self.modules}']


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of trying the fast kernel.

    :ivar boot: the boot of the machine in which it was tried
    :ivar time: when, in seconds since the epoch
    :ivar fault: why it cannot be had; empty if it can
    """

    boot: str
    time: float
    fault: str = ''

    @classmethod
    def read(cls, path: pathlib.Path) -> Verdict | None:
        """The one in a file, if there is one."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, TypeError, ValueError):
            return None

    def holds(self, boot: str, now: float, asked: bool) -> bool:
        """Whether there is no need to try again.

        :param asked: somebody wants this kernel and no other
        """
        if self.boot != boot:
            return False
        return not self.fault or (not asked and now - self.time < _PATIENCE)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --kernel; see use()."""
    parser.add_argument('--kernel', choices=NAMES, help='what the nodes run '
                        'on (default: fast where it can be had)')


def use(name: str | None) -> None:
    """Let this process and those it starts choose that kernel."""
    if name:
        os.environ[VARIABLE] = name


def choose(name: str | None = None) -> Kernel:
    """The kernel of that name, else the one that the environment names.

    If neither names one it is the fast one where it can be had; a line on
    stderr says why if not.

    :raises LabError: if the one asked for cannot be had; one line
    """
    return _chosen(name or os.environ.get(VARIABLE, ''))


@functools.cache
def _chosen(name: str) -> Kernel:
    if name and name not in NAMES:
        raise LabError(f'{VARIABLE}={name}: must be one of '
                       f'{" and ".join(NAMES)}')
    os.makedirs(_MODULES, exist_ok=True)
    if name == DISTRIBUTION:
        return _distribution()
    try:
        return _fast(asked=bool(name))
    except LabError as exc:
        if name:
            raise
        print(f'lab: the nodes run on the kernel of the distribution, which '
              f'is several times slower: {exc}', file=sys.stderr)
        return _distribution()


def _distribution() -> Kernel:
    install.ensure_packages((_PACKAGE,))
    version = run('dpkg-query', '-W', '-f', '${Version}', _PACKAGE).stdout
    return Kernel(DISTRIBUTION, version, pathlib.Path('/usr/bin/linux.uml'),
                  pathlib.Path('/usr/lib/uml/modules'))


def _fast(asked: bool) -> Kernel:
    cache = install.cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    directory = cache / f'kernel-{archive.SUITE}'
    record = directory.with_suffix('.json')
    boot = _BOOT_ID.read_text().strip()
    with install.locked(directory.with_suffix('.lock')):
        verdict = Verdict.read(record)
        if not verdict or not verdict.holds(boot, time.time(), asked) or not (
                verdict.fault or _whole(directory)):
            verdict = Verdict(boot, time.time(), _fault(directory))
            part = record.with_suffix('.part')
            part.write_text(json.dumps(vars(verdict)))
            part.rename(record)
    if verdict.fault:
        raise LabError(f'the fast kernel cannot be had: {verdict.fault}')
    return _in(directory)


def _fault(directory: pathlib.Path) -> str:
    """Why the fast kernel cannot be had; makes it if it is not there."""
    try:
        if not _whole(directory):
            _make(directory)
        return _trial(_in(directory))
    except (LabError, OSError, subprocess.SubprocessError) as exc:
        lines = str(exc).strip().splitlines()
        return lines[-1] if lines else repr(exc)


def _version(directory: pathlib.Path) -> pathlib.Path:
    """The file that is made last."""
    return directory / 'version'


def _whole(directory: pathlib.Path) -> bool:
    return _version(directory).exists()


def _in(directory: pathlib.Path) -> Kernel:
    return Kernel(FAST, _version(directory).read_text(), directory / 'linux',
                  directory / 'tree/usr/lib/uml/modules', ('seccomp=on',))


def _make(directory: pathlib.Path) -> None:
    """Bring the kernel with the libraries it wants.

    Its file holds the place of its libraries, so it cannot be made elsewhere
    and moved.
    """
    print(f'lab: fetching {_PACKAGE} of Debian {archive.SUITE}',
          file=sys.stderr)
    install.ensure_packages(('patchelf',))
    shutil.rmtree(directory, ignore_errors=True)
    tree = directory / 'tree'
    tree.mkdir(parents=True)
    version = archive.unpack(_PACKAGE, tree)
    shutil.rmtree(tree / 'usr/share')
    binary = directory / 'linux'
    shutil.copy(tree / 'usr/bin/linux.uml', binary)
    # Started by the dynamic loader it takes the wrong end of the heap for
    # its memory.
    run('patchelf', '--set-interpreter',
        str(tree / 'usr/lib64/ld-linux-x86-64.so.2'),
        '--set-rpath', str(tree / 'usr/lib/x86_64-linux-gnu'), str(binary))
    part = directory / 'version.part'
    part.write_text(version)
    part.rename(_version(directory))


def _trial(kernel: Kernel) -> str:
    """Start a kernel once; why it cannot be a node's, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        log = directory / 'log'
        group = Group(directory / 'pid')
        try:
            group.start([
                *kernel.command(), 'mem=128M', 'rootfstype=hostfs',
                'rootflags=/', 'ro', f'init={_TRIAL}', 'con=null',
                'con0=fd:0,fd:1', 'ssl=null', 'noreboot', 'quiet',
                f'uml_dir={directory}', 'umid=trial'], log)
            wait_for('end of its trial', lambda: not group.members(), 120)
        finally:
            group.kill()
        return trial_fault(log.read_text(errors='replace'))


def trial_fault(text: str) -> str:
    """Why a kernel that printed this cannot be a node's, or nothing."""
    found = _SAID.search(text)
    if found:
        return '' if found[1] == 'well' else found[1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f'its trial ended with: {lines[-1] if lines else "nothing"}'
