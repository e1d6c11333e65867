# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of tools/test and adds up what passed and failed.

Uses the standard library only: it runs before anything is installed.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import (Callable, Collection, Iterator, Mapping,
                             Sequence)

from tools import outcome, shares
from tools.arguments import parse

from lab import entry, processes, remains

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / '.tox'
LOGS = WORK / 'logs'
BOOTSTRAP = WORK / 'bootstrap'
RESULTS = WORK / 'functional-results'
TOX = 'tox>=4.11,<5'
PYTHON = '/usr/bin/python3'
# The stages that need labs, and seconds until the first test begins.
IN_LABS = {'functional': 40.0, 'nova': 80.0, 'tempest': 60.0,
           'tempest_nova': 110.0, 'machine': 300.0}
# Those that are run without being asked for: always, and with --long.
ALWAYS = ('functional', 'nova')
WITH_LONG = ('tempest', 'tempest_nova')
MACHINE = 'machine'
# How much longer a test takes on the distribution's kernel, where that was not
# recorded; one whose full length was not has the ordinary one.
SLOWER = 2.1
# Seconds that a stage takes for each that was recorded: what tempest makes for
# a class is in the time of no test.
BESIDE = {'tempest_nova': 2.4}
# Tests run in so many labs at once: one often waits, the less with QEMU in it.
LABS = {'functional': 3, 'nova': 2, 'tempest': 2, 'tempest_nova': 2,
        MACHINE: 1}
# How names of tests begin that are not of this project.
FOREIGN = dict.fromkeys(WITH_LONG, ('tempest.', 'cinder_tempest_plugin.'))
# What needs no lab, and seconds that it takes. The simulation is divided
# within itself, see tests/simulation/test_explore.py.
UNIT = {'pep8': 5.0, 'docs': 10.0, 'releasenotes': 3.0}
# The unit tests beside Cinder's older releases.
OLDER_RELEASES = {'py3-2025.1': 150.0, 'py3-2026.1': 150.0}
# What needs no lab either, but root.
AS_ROOT = {'devstack': 10.0, 'scheduler': 20.0}
# How much of a failed stage's log is shown.
TAIL_LINES = 40
# How long an interrupted stage may take to clean up, in seconds.
GRACE = 60


class StageFailed(Exception):
    """A stage that did not do its work; the text is for a person."""


class Run:
    """One run of tools/test: what has passed and failed so far."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        # Seconds of each test by stage.
        self.times: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Print name, result and time of what happens inside."""
        print(f'== {name}', flush=True)
        begin = time.monotonic()
        result = 'FAILED'
        try:
            yield
            result = 'ok'
        except StageFailed as error:
            print(error, flush=True)
        except KeyboardInterrupt:
            result = 'interrupted'
            raise
        finally:
            seconds = time.monotonic() - begin
            print(f'== {name}: {result}, {seconds:.0f} s', flush=True)

    def lint(self, name: str, function: Callable[..., None],
             *args: str) -> None:
        """A stage that counts as one test."""
        with self.stage(name):
            try:
                function(*args)
            except StageFailed:
                self.failed += 1
                raise
            self.passed += 1

    def tests(self, name: str, argv: Sequence[str], results: Sequence[str],
              echo: bool = False) -> None:
        """A stage of stestr; ``results`` is the command for its stream."""
        with self.stage(name):
            failure = None
            # The number of the last run: a stage that dies early must not
            # be credited with the results of the one before.
            before = outcome.stream_number(results)
            try:
                execute(name, argv, echo)
            except StageFailed as error:
                failure = error
            passed, failed = 0, 0
            if outcome.stream_number(results) != before:
                passed, failed = outcome.count(results)
                self.times[name] = outcome.times(results)
                print(outcome.raised((LOGS / f'{name}.log').read_text()),
                      end='')
            if not failed and (failure or not passed):
                failed = 1
                failure = failure or StageFailed('no test was run')
            print(f'{passed} passed, {failed} failed in {name}', flush=True)
            self.passed += passed
            self.failed += failed
            if failure:
                raise failure


def _end(child: subprocess.Popen[str]) -> None:
    """Wait for a stage, then end what it has left: it may have been killed.

    Workers that live have its output open, which else would never end.
    """
    processes.wait_as_parent(child)
    processes.end_descendants(GRACE)


def execute(name: str, argv: Sequence[str], echo: bool = False) -> None:
    """Run a command with its output in a log (and shown, if ``echo``).

    It has a process group of its own, so that it is asked to end once, by
    us, and can clean up.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f'{name}.log'
    with log.open('w') as file:
        child = subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors='replace',
            env={**os.environ, 'DMCLONE_RUNNER': str(os.getpid())},
            start_new_session=True)
        end = threading.Thread(target=_end, args=(child,), daemon=True)
        end.start()
        assert child.stdout
        for line in child.stdout:
            file.write(line)
            file.flush()
            if echo:
                print(line, end='', flush=True)
        end.join()
    if child.returncode:
        tail = [] if echo else log.read_text().splitlines()[-TAIL_LINES:]
        raise StageFailed('\n'.join(
            [*tail, f'exit status {child.returncode}; log: {log}']))


def stestr(binaries: pathlib.Path, repository: pathlib.Path,
           *words: str) -> list[str]:
    """A stestr command; ``repository`` is where its .stestr is."""
    return [str(binaries / 'stestr'), '--repo-url', str(repository), *words]


def bootstrap() -> None:
    """A virtualenv with tox."""
    if sys.version_info < (3, 11):
        raise StageFailed(f'{PYTHON} is older than Python 3.11')
    if subprocess.run([PYTHON, '-c', 'import ensurepip'],
                      stderr=subprocess.DEVNULL).returncode:
        raise StageFailed('the package python3-venv is missing')
    if not (BOOTSTRAP / 'bin/tox').exists():
        execute('venv', [PYTHON, '-m', 'venv', '--clear', str(BOOTSTRAP)])
        execute('tox', [str(BOOTSTRAP / 'bin/pip'), 'install', '--quiet',
                        TOX])


def tox(environment: str, *words: str) -> None:
    """Run a tox environment."""
    execute(environment, tox_command(environment, *words))


def tox_command(environment: str, *words: str) -> list[str]:
    """The tox command for one environment."""
    return [str(BOOTSTRAP / 'bin/tox'), 'run', '-e', environment,
            *(['--', *words] if words else [])]


def lab_virtualenv(names: Sequence[str | None]
                   ) -> tuple[pathlib.Path, list[str]]:
    """Install what the lab needs.

    :param names: of kernels; None is the one to be had
    :returns: the directory of the lab's commands, and the kernels' names
    """
    from lab import errors
    from lab import install
    from lab import kernel
    try:
        base = install.ensure()
        chosen = {kernel.choose(name).name: kernel.choose(name)
                  for name in names}
        for each in chosen.values():
            print(f'kernel of the nodes: {each}', flush=True)
        return base / 'bin', list(chosen)
    except errors.LabError as error:
        raise SystemExit(f'tools/test: {error}') from None


def _results(binaries: pathlib.Path, directory: pathlib.Path) -> None:
    """A place for the results of a stage of its own."""
    if not (directory / '.stestr').exists():
        directory.mkdir(parents=True, exist_ok=True)
        execute('stestr', stestr(binaries, directory, 'init'))


def _listed(command: Sequence[str], *begin: str) -> list[str]:
    """The tests that stestr lists, by how their names begin."""
    lines = subprocess.run(command, cwd=ROOT, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                           ).stdout.splitlines()
    return [line for line in lines if line.startswith(begin)]


@dataclasses.dataclass(frozen=True)
class InLabs:
    """The tests of one folder, on one kernel.

    :ivar title: what the stage is called
    :ivar words: regular expressions of the names of those wanted
    :ivar long: whether they are run at their full length
    """

    name: str
    kernel: str
    title: str
    binaries: pathlib.Path
    words: Sequence[str]
    long: bool

    @property
    def record(self) -> str:
        """What it is called in the file of times."""
        return f'{self.name}-{self.kernel}{"-long" if self.long else ""}'

    @property
    def _labs(self) -> int:
        return LABS[self.name]

    def stage(self) -> shares.Stage:
        """Its tests, and how long they take."""
        _results(self.binaries, RESULTS)
        tests = _listed(self._stestr('list', *self.words),
                        *FOREIGN.get(self.name, (f'tests.{self.name}.',)))
        times_ = shares.timed(tests, self.known(), BESIDE.get(self.name, 1.0))
        return shares.Stage(self.title, times_, IN_LABS[self.name], self._labs)

    def known(self) -> shares.Times:
        """Seconds of each test: as recorded, else those of what is alike."""
        found = shares.recorded()
        slower = SLOWER if self.kernel == 'distribution' else 1.0
        # One that takes nothing was skipped there.
        return {**{test: slower * seconds for test, seconds
                   in found.get(f'{self.name}-fast', {}).items()
                   if not self.long or seconds > shares.SKIPPED},
                **found.get(self.record, {})}

    def run(self, run: Run, tests: Mapping[str, float]) -> None:
        """Run some of them; without any, say what is wrong."""
        length = ['DMCLONE_LONG=1'] if self.long else ['-u', 'DMCLONE_LONG']
        run.tests(self.title,
                  ['env', *length, f'DMCLONE_KERNEL={self.kernel}',
                   *self._stestr('run', *shares.worker_file(
                       WORK, self.name, tests, self._labs))],
                  stestr(self.binaries, RESULTS, 'last', '--subunit'),
                  echo=True)
        outcome.keep(self.record, run.times.get(self.title, {}))

    def _stestr(self, *words: str) -> list[str]:
        return stestr(self.binaries, RESULTS, '--test-path',
                      f'tests/{self.name}', *words)


def _beside(run: Run, name: str, binaries: pathlib.Path,
            python: pathlib.Path) -> None:
    """The tests of one folder, with what something else has installed."""
    results = WORK / f'{name}-results'
    _results(binaries, results)
    # The order of sets is part of a schedule of the simulation.
    words = ['env', 'PYTHONHASHSEED=0', f'PYTHON={python}', *stestr(
        binaries, results, '--test-path', f'tests/{name}')]
    known = shares.recorded().get(name)
    tests = known and shares.timed(
        _listed([*words, 'list'], f'tests.{name}.'), known)
    # What cannot be listed is told by a run of all.
    run.tests(name, [*words, 'run', *(shares.worker_file(
        WORK, name, tests, len(os.sched_getaffinity(0))) if tests else ())],
        stestr(binaries, results, 'last', '--subunit'))
    outcome.keep(name, run.times.get(name, {}))


def beside_unit(run: Run, name: str, newest: str) -> None:
    """Those that need what the unit tests do."""
    binaries = WORK / newest / 'bin'
    if not (binaries / 'stestr').exists():
        execute(newest, [*tox_command(newest), '--notest'])
    _beside(run, name, binaries, binaries / 'python')


def beside_nova(run: Run, name: str) -> None:
    """Those that need the Nova of labs."""
    from lab import guest, install
    base = install.ensure()
    nova = install.ensure_nova(base, guest.GUEST_PACKAGES)
    _beside(run, name, base / 'bin', nova / 'bin/python')


def unit(run: Run, wanted: Collection[str], newest: str) -> None:
    """Whatever needs no lab: the stages wanted, and the simulation."""
    with run.stage('bootstrap'):
        try:
            bootstrap()
        except StageFailed:
            run.failed += 1
            raise
    if run.failed:
        return
    if 'pep8' in wanted:
        run.lint('pep8', tox, 'pep8')
    for name in newest, *OLDER_RELEASES:
        if name in wanted:
            run.tests(name, tox_command(name),
                      stestr(WORK / name / 'bin', ROOT, 'last', '--subunit'))
    beside_unit(run, 'simulation', newest)
    if 'devstack' in wanted:
        beside_unit(run, 'devstack', newest)
    if 'scheduler' in wanted:
        beside_nova(run, 'scheduler')
    for name in ('docs', 'releasenotes'):
        if name in wanted:
            run.lint(name, tox, name)


def in_labs(arguments: argparse.Namespace,
            asked: Mapping[str, Sequence[str]], binaries: pathlib.Path,
            kernels: Sequence[str]) -> list[InLabs]:
    """The stages in labs.

    The length of a test is for the first kernel: what kernels differ in, the
    devices, is in those of ordinary length.
    """
    lengths = [arguments.long, *(False for _ in kernels[1:])]
    return [
        InLabs(name, kernel, name if len(kernels) == 1
               else f'{name}-{kernel}', binaries, asked.get(name, ()), long)
        for kernel, long in zip(kernels, lengths)
        for name in asked or [*ALWAYS, *(WITH_LONG if long else ())]]


def _leave_nothing() -> None:
    """End all that runs; remove what was killed before it could do so."""
    processes.end_descendants(GRACE)
    if os.geteuid() == 0:
        remains.sweep()


def run_stages(run: Run, arguments: argparse.Namespace) -> None:
    """All that was asked for, or the share of it."""
    labs: dict[str, InLabs] = {}
    asked = {name: getattr(arguments, name) for name in IN_LABS
             if getattr(arguments, name) is not None}
    if not arguments.unit:
        with run.stage('lab'):
            binaries, kernels = lab_virtualenv(_kernels(arguments))
        labs = {each.title: each for each in in_labs(
            arguments, asked, binaries, kernels)}
    stages = {title: each.stage() for title, each in labs.items()}
    if not asked:
        # To follow what the tests reach takes three fifths more.
        newest = 'cover' if arguments.long else 'py3'
        stages['unit'] = shares.Stage('unit', {
            **UNIT, newest: 300.0, **({} if arguments.unit else AS_ROOT),
            **(OLDER_RELEASES if arguments.long else {})})
    number, count = arguments.share
    mine = shares.divide(stages.values(), count)[number - 1]
    if not asked:
        unit(run, mine.get('unit', ()), newest)
    for title, each in labs.items():
        times_ = stages[title].tests
        if title in mine or not times_:
            each.run(run, {test: times_[test]
                           for test in mine.get(title, ())})


def _kernels(arguments: argparse.Namespace) -> list[str | None]:
    usual = arguments.machine is None
    if arguments.long and usual and not arguments.kernel:
        return [None, 'distribution']
    return [arguments.kernel]


def main() -> int:
    """Run the stages that the command line asks for.

    However it ends, nothing that it has started stays.
    """
    processes.adopt()
    entry.interrupt_once()
    try:
        with remains.temporary():
            try:
                return _main()
            finally:
                _leave_nothing()
    except KeyboardInterrupt:
        # It came while nothing was left to end, or all has ended.
        _leave_nothing()
        print('interrupted', file=sys.stderr)
        return 130


def _main() -> int:
    arguments = parse()
    if arguments.long:
        os.environ['DMCLONE_LONG'] = '1'
        os.environ['DMCLONE_SHARE'] = '{}/{}'.format(*arguments.share)
    run = Run()
    run_stages(run, arguments)
    print(outcome.slowest(run.times), end='')
    if run.failed:
        print(f'logs: {LOGS}')
    print(f'{run.passed} passed, {run.failed} failed')
    return 1 if run.failed else 0


if __name__ == '__main__':
    sys.exit(main())
