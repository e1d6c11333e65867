# SPDX-License-Identifier: Apache-2.0
"""Putting the files of a node where its systems read them.

All files are ours alone and are replaced as a whole: what an operator had
changed in one stays beside it, under a name that nobody reads. All new texts
are written before the first file is replaced, so that a disk that is full or
read-only leaves everything as it was.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import enum
import os
import pathlib
import stat

from cinder_dmclone import files

_MODE = 0o644


class HalfDone(Exception):
    """What failed when files had been replaced already, in one line."""


class State(enum.Enum):
    """What there is at a file's place."""

    MISSING = 'missing'
    DIFFERENT = 'different'
    RIGHT = 'unchanged'
    # Under a name that it should not have.
    LEFT_OVER = 'left over'
    # The same, where packages put their files.
    FOREIGN = 'left alone'


@dataclasses.dataclass(frozen=True)
class Step:
    """One file: where it has to be, and what is there.

    :ivar file: None if nothing of ours should be there
    """

    path: pathlib.Path
    state: State
    file: files.File | None = None

    @property
    def kept(self) -> pathlib.Path:
        """Where the former text goes. What begins with a dot nobody reads:
        neither rootwrap nor what wants a suffix.
        """
        return self.path.with_name(f'.{self.path.name}.old')

    @property
    def draft(self) -> pathlib.Path:
        return self.path.with_name(f'.{self.path.name}.new')


def plan(root: pathlib.Path, command: str,
         rootwrap_only: bool = False) -> list[Step]:
    """What there is to do below a root; changes nothing.

    :param command: see ``files.of_node``
    :raises CannotInstall: if it cannot be told, or something is in the way
    :raises OSError: if something cannot be read
    """
    if not root.is_dir():
        raise files.CannotInstall(f'--root {root}: there is no such directory')
    wanted = ([files.rootwrap()] if rootwrap_only
              else list(files.of_node(root, command)))
    steps = [_look(root, file) for file in wanted]
    for file in wanted:
        if file.place.endswith('.rules'):
            steps += [
                Step(path, State.LEFT_OVER if path.parent == (
                    root / file.place).parent else State.FOREIGN)
                for path in files.other_rules(root, file.place)]
    return steps


def _look(root: pathlib.Path, file: files.File) -> Step:
    path = root / file.place
    # In an image a link may lead to the machine that builds it.
    if not path.parent.resolve().is_relative_to(root.resolve()):
        raise files.CannotInstall(f'{path.parent} leads out of {root}')
    try:
        found = path.lstat()
    except FileNotFoundError:
        return Step(path, State.MISSING, file)
    if file.target:
        return Step(path, State.RIGHT, file)
    if not stat.S_ISREG(found.st_mode):
        # For example a unit that is masked.
        raise files.CannotInstall(f'{path} is no regular file: move it away')
    right = (path.read_bytes() == file.text.encode()
             and stat.S_IMODE(found.st_mode) == _MODE
             and found.st_uid in (0, os.geteuid()))
    return Step(path, State.RIGHT if right else State.DIFFERENT, file)


def apply(steps: collections.abc.Sequence[Step]) -> None:
    """Make everything as planned, durably.

    :raises OSError: if it cannot be; everything is as it was
    :raises HalfDone: if that was not known before the first was replaced
    """
    todo = [step for step in steps if step.file
            and step.state is not State.RIGHT]
    with contextlib.ExitStack() as undo:
        for step in todo:
            _make_folder(step.path.parent, undo)
            undo.callback(step.draft.unlink, missing_ok=True)
            _write(step)
        undo.pop_all()
    try:
        for step in steps:
            _replace(step)
        for folder in {step.path.parent for step in todo}:
            _sync(folder)
    except OSError as error:
        raise HalfDone(f'{error.filename}: {error.strerror}') from error


def _replace(step: Step) -> None:
    if step.state is State.DIFFERENT:
        step.kept.unlink(missing_ok=True)
        step.kept.hardlink_to(step.path)
    if step.state in (State.DIFFERENT, State.MISSING):
        step.draft.replace(step.path)
    if step.state is State.LEFT_OVER:
        step.path.unlink(missing_ok=True)


def _make_folder(path: pathlib.Path, undo: contextlib.ExitStack) -> None:
    if not path.is_dir():
        _make_folder(path.parent, undo)
        path.mkdir()
        undo.callback(path.rmdir)
        path.chmod(0o755)


def _write(step: Step) -> None:
    assert step.file
    # A draft of a run that was interrupted.
    step.draft.unlink(missing_ok=True)
    if step.file.target:
        step.draft.symlink_to(step.file.target)
        return
    with open(step.draft, 'x', encoding='utf-8') as draft:
        draft.write(step.file.text)
        os.fchmod(draft.fileno(), _MODE)
        draft.flush()
        os.fsync(draft.fileno())


def _sync(folder: pathlib.Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
