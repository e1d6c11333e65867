# SPDX-License-Identifier: Apache-2.0
"""Who has which lab, and the removal of labs that nobody has any more.

What has a name is in a directory of that name below ROOT and in a network
namespace. The process that started it holds a lock while it lives, so that
what a killed one left can be told from what is in use.
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, NoReturn

from lab.errors import LabInUse
from lab.network import Network
from lab.processes import ENDING, adopt, end_descendants, wait_for

ROOT = pathlib.Path('/var/lib/cinder-dmclone-lab')
# Below the directory of a lab: its settings, and whether it is to stay up.
SETTINGS = 'lab.json'
_LOCKS = pathlib.Path('/run')
_REMOVER = 'from lab import remains; raise SystemExit(remains.main())'
# What this process has.
_claims: dict[str, Claim] = {}


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """Have a directory of one's own in place of /tmp, for as long as it is.

    Programs that are killed leave their files there.
    """
    with tempfile.TemporaryDirectory(prefix='dmclone-test-',
                                     ignore_cleanup_errors=True) as place:
        os.chmod(place, 0o1777)
        os.environ['TMPDIR'] = place
        yield


class Claim:
    """The right to a name, until release() or the end of the process.

    :raises LabInUse: if another process has it
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._path = _lock(name)
        self._file = self._open()
        _claims[name] = self

    def _open(self) -> IO[str]:
        while True:
            file = self._path.open('w')
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()),
                                    self._path.stat()):
                    return file
            except BlockingIOError:
                file.close()
                raise LabInUse(f'the lab {self.name} is in use by another '
                               'process') from None
            except FileNotFoundError:
                pass
            # Who had it has removed the file meanwhile.
            file.close()

    def release(self) -> None:
        """Let others have the name."""
        if _claims.pop(self.name, None):
            self._path.unlink(missing_ok=True)
            self._file.close()

    def clear(self) -> None:
        """Remove all of the name that is there, then let others have it."""
        remove(self.name)
        self.release()

    def bequeath(self) -> None:
        """Let the program have it that this process runs by exec."""
        os.set_inheritable(self._file.fileno(), True)


def remove(name: str) -> None:
    """Remove all of a name that is on the machine, whoever started it."""
    Network(name).destroy()
    path = ROOT / name

    def gone() -> bool:
        # Who was killed may be writing still.
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()
    wait_for(f'removal of {path}', gone, 60)


def _lock(name: str) -> pathlib.Path:
    return _LOCKS / f'dmclone-lab-{name}.lock'


def traces(name: str) -> list[str]:
    """What of a name is on the machine."""
    network = Network(name)
    return [*(f'process {pid}' for pid in network.pids()),
            *(str(path) for path in (network.path, ROOT / name, _lock(name))
              if path.exists())]


def forget(name: str) -> None:
    """Remove the lock of a name, unless another process has it."""
    try:
        claim = _claims.get(name) or Claim(name)
    except LabInUse:
        return
    claim.release()


def sweep() -> list[str]:
    """Remove what killed processes have left; the names."""
    found = []
    for path in sorted(ROOT.glob('*')):
        if path.name in _claims or _kept(path):
            continue
        try:
            claim = Claim(path.name)
        except LabInUse:
            continue
        claim.clear()
        found.append(path.name)
    return found


def _kept(path: pathlib.Path) -> bool:
    """Whether it is to outlive the process that started it."""
    try:
        return bool(json.loads((path / SETTINGS).read_text())['keep'])
    except FileNotFoundError:
        return False
    except (KeyError, ValueError):
        # Rather one that stays than one that is missed.
        return True


def clear() -> None:
    """Remove what this process has and is not to outlive it."""
    for name, claim in list(_claims.items()):
        if not _kept(ROOT / name):
            remove(name)
        claim.release()


def become_remover(status: int) -> NoReturn:
    """Give up all that this process does; remove what it has, then end.

    It becomes another program at once: nothing of the one that it was, in
    whatever thread, gets in the way, and the locks stay held meanwhile.

    :param status: exit status
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    for claim in _claims.values():
        claim.bequeath()
    checkout = pathlib.Path(__file__).resolve().parent.parent
    os.chdir(checkout)
    os.execv(sys.executable, [sys.executable, '-c', _REMOVER, str(ROOT),
                              str(_LOCKS), str(status), *_claims])


def main() -> int:
    """End the children that an earlier program has left, remove its labs."""
    global ROOT, _LOCKS
    ROOT, _LOCKS = map(pathlib.Path, sys.argv[1:3])
    status, *names = sys.argv[3:]
    adopt()
    end_descendants(0)
    for name in names:
        remove(name)
        # It is held by a descriptor that has no name here.
        _lock(name).unlink(missing_ok=True)
    return int(status)
