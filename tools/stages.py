# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of tools/test and adds up what passed and failed.

Uses the standard library only: it runs before anything is installed.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from lab import entry
from lab import processes
from lab import remains

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / '.tox'
LOGS = WORK / 'logs'
BOOTSTRAP = WORK / 'bootstrap'
RESULTS = WORK / 'functional-results'
SIMULATION = WORK / 'simulation-results'
TOX = 'tox>=4.11,<5'
PYTHON = '/usr/bin/python3'
# Tests in labs run in so many of them at once: a lab often waits.
LABS = ('--concurrency', '2')
# The stages that need labs, each with how its tests are shared out. Those that
# start something of their own beside the lab stay together.
IN_LABS = {'functional': (*LABS, '--group-regex', r'.*test_(galera|power)\.'),
           'nova': LABS}
# The unit tests beside Cinder's older releases; ``cover`` has the newest.
OLDER_RELEASES = ('py3-2025.1', 'py3-2026.1')
# How much of a failed stage's log is shown.
TAIL_LINES = 40
# How much of each traceback is repeated below the log.
ERROR_LINES = 8
# In what stestr prints: a test that failed, and what it raised.
_FAILED = re.compile(r'^\{\d+\} (\S+) [^\n]*FAILED\n(.*?)'
                     r'(?=^\{\d+\} |^=+\nFailed |\Z)', re.M | re.S)
_RAISED = re.compile(r'^Captured traceback\S*:\n~+\n(.*?)(?=^Captured |\Z)',
                     re.M | re.S)
# How long an interrupted stage may take to clean up, in seconds.
GRACE = 60


class StageFailed(Exception):
    """A stage that did not do its work; the text is for a person."""


class Run:
    """One run of tools/test: what has passed and failed so far."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

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
            before = _stream_number(results)
            try:
                execute(name, argv, echo)
            except StageFailed as error:
                failure = error
            passed, failed = 0, 0
            if _stream_number(results) != before:
                passed, failed = count(results)
                print(raised((LOGS / f'{name}.log').read_text()), end='')
            if not failed and (failure or not passed):
                failed = 1
                failure = failure or StageFailed('no test was run')
            print(f'{passed} passed, {failed} failed in {name}', flush=True)
            self.passed += passed
            self.failed += failed
            if failure:
                raise failure


def _end(child: subprocess.Popen) -> None:
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


def _stream_number(results: Sequence[str]) -> str:
    repository = pathlib.Path(results[results.index('--repo-url') + 1])
    try:
        return (repository / '.stestr/next-stream').read_text()
    except FileNotFoundError:
        return ''


def count(results: Sequence[str]) -> tuple[int, int]:
    """Passed and failed of the last stestr run; skipped ones are neither."""
    stream = subprocess.run(results, cwd=ROOT, stdout=subprocess.PIPE)
    stats = subprocess.run(
        [str(pathlib.Path(results[0]).with_name('subunit-stats'))],
        input=stream.stdout, stdout=subprocess.PIPE).stdout.decode()
    numbers = dict(re.findall(r'^(\w+) tests:\s+(\d+)$', stats, re.M))
    return int(numbers.get('Passed', 0)), int(numbers.get('Failed', 0))


def raised(log: str) -> str:
    """The ends of what failed tests raised, to be seen at a log's end."""
    found = []
    for test, details in _FAILED.findall(log):
        for text in _RAISED.findall(details):
            lines = [line for line in text.splitlines() if line.strip()]
            found += [test, *lines[-ERROR_LINES:]]
    return ''.join(f'{line}\n' for line in found)


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


def lab_virtualenv(kernel_name: str | None) -> pathlib.Path:
    """Install what the lab needs; returns the directory of its commands.

    All labs run on the kernel that is printed.
    """
    from lab import errors
    from lab import install
    from lab import kernel
    try:
        base = install.ensure()
        chosen = kernel.choose(kernel_name)
        print(f'kernel of the nodes: {chosen}', flush=True)
        kernel.use(chosen.name)
        return base / 'bin'
    except errors.LabError as error:
        raise SystemExit(f'tools/test: {error}') from None


def _results(binaries: pathlib.Path, directory: pathlib.Path) -> None:
    """A place for the results of a stage of its own."""
    if not (directory / '.stestr').exists():
        directory.mkdir(parents=True, exist_ok=True)
        execute('stestr', stestr(binaries, directory, 'init'))


def in_labs(run: Run, name: str, binaries: pathlib.Path,
            words: Sequence[str]) -> None:
    """The tests of one folder, in labs."""
    _results(binaries, RESULTS)
    run.tests(name,
              stestr(binaries, RESULTS, '--test-path', f'tests/{name}',
                     'run', *IN_LABS[name], *words),
              stestr(binaries, RESULTS, 'last', '--subunit'), echo=True)


def simulation(run: Run) -> None:
    """The simulator, with what the unit tests have installed."""
    binaries = WORK / 'cover/bin'
    _results(binaries, SIMULATION)
    # The order of sets is part of a schedule.
    run.tests('simulation',
              ['env', 'PYTHONHASHSEED=0',
               *stestr(binaries, SIMULATION, '--test-path',
                       'tests/simulation', 'run')],
              stestr(binaries, SIMULATION, 'last', '--subunit'))


def unit(run: Run) -> None:
    """Whatever needs no root."""
    with run.stage('bootstrap'):
        try:
            bootstrap()
        except StageFailed:
            run.failed += 1
            raise
    if run.failed:
        return
    run.lint('pep8', tox, 'pep8')
    run.tests('cover', tox_command('cover'),
              stestr(WORK / 'cover/bin', ROOT, 'last', '--subunit'))
    if (WORK / 'cover/bin/stestr').exists():
        simulation(run)
    for name in OLDER_RELEASES if os.environ.get('DMCLONE_LONG') else ():
        run.tests(name, tox_command(name),
                  stestr(WORK / name / 'bin', ROOT, 'last', '--subunit'))
    run.lint('docs', tox, 'docs')
    run.lint('releasenotes', tox, 'releasenotes')


def _leave_nothing() -> None:
    """End all that runs; remove what was killed before it could do so."""
    processes.end_descendants(GRACE)
    if os.geteuid() == 0:
        remains.sweep()


def main() -> int:
    """Run the stages that the command line asks for.

    However it ends, nothing that it has started stays.
    """
    processes.adopt()
    entry.interrupt_once()
    try:
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
    parser = argparse.ArgumentParser(
        prog='tools/test', description='Run every test there is: lint, unit '
        'tests with coverage, the simulation, documents, and the tests in '
        'labs. Installs what is missing.')
    only = parser.add_mutually_exclusive_group()
    only.add_argument('--unit', action='store_true',
                      help='only what needs no root')
    for name, what in (('functional', 'a lab'), ('nova', 'a lab with Nova')):
        only.add_argument(f'--{name}', nargs='*', metavar='TEST',
                          help=f'only the tests in {what}; arguments go to '
                          'stestr run (regular expressions of test names)')
    parser.add_argument('--kernel', choices=('fast', 'distribution'),
                        help='what the nodes of labs run on (default: fast '
                        'where it can be had)')
    parser.add_argument('--long', action='store_true',
                        help='tests at their full length: every crash point, '
                        'schedules of fresh seeds, and all that takes long')
    arguments = parser.parse_args()
    if arguments.long:
        os.environ['DMCLONE_LONG'] = '1'
    if not arguments.unit and os.geteuid() != 0:
        parser.exit(1, 'tools/test: the lab needs root (try: sudo '
                    'tools/test, or tools/test --unit)\n')
    run = Run()
    binaries = None
    if not arguments.unit:
        with run.stage('lab'):
            binaries = lab_virtualenv(arguments.kernel)
    asked = {name: getattr(arguments, name) for name in IN_LABS
             if getattr(arguments, name) is not None}
    if not asked:
        unit(run)
    if binaries:
        for name in asked or IN_LABS:
            in_labs(run, name, binaries, asked.get(name, ()))
    if run.failed:
        print(f'logs: {LOGS}')
    print(f'{run.passed} passed, {run.failed} failed')
    return 1 if run.failed else 0


if __name__ == '__main__':
    sys.exit(main())
