# SPDX-License-Identifier: Apache-2.0
"""What every functional test starts from and is measured by."""
from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import random
import shlex
import sys
import typing
from collections.abc import Callable, Iterable, Iterator

from lab import (FAULTY_DRIVER, LabError, RestError, blocks, checker, config,
                 programs)
from lab.attached import AttachedVolume
from lab.processes import wait_for
from lab.volume import CONF
from tests.functional import environment
from tests.functional import faults

if typing.TYPE_CHECKING:
    from lab.lab import Lab, LabNode

GIB = environment.GIB
# For what reads or writes a whole volume.
LONG_SECONDS = 900
# Less than service_down_time by more than report_interval (lab/config.py).
REPORTED_SECONDS = 60

# The disk of a target's session: the udev rule keeps links by path away.
_DISK = '''
for session in /sys/class/iscsi_session/session*; do
    [ "$(cat "$session/targetname")" = "$1" ] || continue
    for disk in "$session"/device/target*/*/block/*; do
        [ ! -e "/dev/${disk##*/}" ] || echo "/dev/${disk##*/}"
    done
done
'''


def set_options(node: LabNode, section: str = config.BACKEND,
                **options: object) -> None:
    """Change the configuration of a node's cinder-volume."""
    lines = [f'{name} = {value}' for name, value in options.items()]
    node.run(['sed', '-i', rf'/^\[{section}\]/a ' + r'\n'.join(lines), CONF])


# Findings of tests that failed: later ones are not blamed for them.
_known: set[str] = set()
# Tests that could not remove what they made.
_unfinished: list[str] = []


class Image:
    """What a volume has to contain."""

    def __init__(self, directory: pathlib.Path, size: int = GIB) -> None:
        self._owner = random.randrange(1, 1 << 32)
        self._size = size
        self._writes: list[blocks.Write] = []
        self._directory = directory

    def _command(self, verb: str, at: AttachedVolume,
                 *words: object) -> list[str]:
        return programs.command(self._directory, 'blocks', verb, at.path,
                                self._owner, *words)

    def fill(self, at: AttachedVolume) -> None:
        """Write the whole device."""
        at.node.run(self._command('fill', at),
                    timeout=LONG_SECONDS)

    def write_command(self, at: AttachedVolume, first: int, count: int,
                      step: int = 1) -> str:
        """A command that writes blocks; it counts as written from now."""
        self._writes.append((first, count, step))
        return shlex.join(self._command('write', at, len(self._writes),
                                        first, count, step))

    def write(self, at: AttachedVolume, first: int, count: int,
              step: int = 1) -> None:
        """Write 4 KiB blocks and flush."""
        at.node.run(self.write_command(at, first, count, step),
                    timeout=LONG_SECONDS)

    def difference(self, at: AttachedVolume, first: int = 0,
                   size: int | None = None) -> str:
        """How the device differs from what it has to contain, in words."""
        return self._compare('all', at, first, size or self._size)

    def blocks_difference(self, at: AttachedVolume) -> str:
        """The same for the blocks of ``write`` alone."""
        return self._compare('written', at)

    def _compare(self, verb: str, at: AttachedVolume, *numbers: int) -> str:
        writes = [','.join(map(str, write)) for write in self._writes]
        result = at.node.run(self._command(verb, at, *numbers, *writes),
                             check=False, timeout=LONG_SECONDS)
        # One that was killed has said nothing.
        return result.stderr.strip() or (
            f'status {result.code}' if result.code else '')


def login(node: LabNode, info: dict[str, typing.Any],
          password: str | None = None) -> str:
    """Log in to what a connection info names; the disk's path.

    :raises CommandError: if the target refuses
    """
    target = (f'iscsiadm -m node -T {info["target_iqn"]} '
              f'-p {info["target_portal"]}')
    secret = password or info['auth_password']
    node.run(f'{target} -o new && {target} -o update '
             '-n node.session.auth.authmethod -v CHAP '
             f'-n node.session.auth.username -v {info["auth_username"]} '
             f'-n node.session.auth.password -v {secret} '
             '-n node.session.initial_login_retry_max -v 1 && '
             f'{target} --login')
    return str(wait_for(
        f'disk of {info["target_iqn"]} on {node.name}', lambda: node.run(
            ['sh', '-c', _DISK, 'sh', info['target_iqn']]).stdout.strip()))


def logout(node: LabNode, info: dict[str, typing.Any]) -> None:
    """Undo ``login``, however far it came."""
    target = f'iscsiadm -m node -T {info["target_iqn"]}'
    node.run(f'{target} --logout; {target} -o delete', check=False)


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except RestError as error:
        if error.status != 404:
            raise


class FunctionalTest(faults.Faults):
    """A test in the lab; afterwards the lab must be clean.

    ``node1`` and ``node2`` are the nodes, if there are no more.
    """

    volatile = False
    metadata = False
    nodes = 2
    driver = FAULTY_DRIVER
    # What the last test that passed has left is looked for when the class
    # ends; the next test looks for what the one before has left.
    _last: typing.ClassVar[FunctionalTest | None] = None

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        # Its start is no part of a test's time.
        cls.the_lab()

    @classmethod
    def the_lab(cls) -> Lab:
        """The lab, started if need be."""
        return environment.lab(cls.volatile, cls.driver, cls.nodes,
                               cls.metadata)

    @property
    def gib(self) -> int:
        """What a GiB of Cinder's has there, in bytes."""
        return environment.gib(self.volatile)

    @classmethod
    def tearDownClass(cls) -> None:
        last, cls._last = cls._last, None
        if last:
            findings = last._new_findings()
            if findings:
                environment.collect_logs(f'{last.id()}.afterwards',
                                         last.checker.states, last.lab)
                raise AssertionError(f'left behind by {last.id()} or one '
                                     f'before it: {findings}')
        super().tearDownClass()

    def setUp(self) -> None:
        super().setUp()
        self.failed = False
        self.lab = self.the_lab()
        self.node1, self.node2 = self.lab.nodes[:2]
        self.checker = checker.Checker(self.lab, self.gib)
        self.volumes: list[str] = []
        self.addOnException(self._keep_logs)
        self.addCleanup(self._finish)
        self.restore()
        if _unfinished:
            self._clear_away()

    # -- after the test -----------------------------------------------------

    def _keep_logs(self, info: typing.Any) -> None:
        self.failed = True
        try:
            self.checker.look()
        except (LabError, OSError) as error:
            self.checker.states += f'\n{error!r}'
        environment.keep_logs(self, self.checker.states, self.lab)

    def _finish(self) -> None:
        """Check what the test left, and remove its volumes."""
        _unfinished.append(self.id())
        self.restore()
        # What a failed test has left under way may wait for its end.
        findings = [] if self.failed else self._new_findings()
        self.remove_volumes()
        type(self)._last = self
        if findings or self.failed:
            findings += self._new_findings()
            type(self)._last = None
        _unfinished.clear()
        self.assertEqual([], findings, 'left behind')

    def _clear_away(self) -> None:
        """Remove what earlier tests left; what stays is not news."""
        for volume, in self.lab.sql('select id from volumes where '
                                    'deleted = 0'):
            try:
                self._remove(volume)
            except LabError as error:
                print(f'{volume} of {_unfinished} stays: {error}',
                      file=sys.stderr)
        _known.update(self.checker.check())
        _unfinished.clear()

    def _new_findings(self) -> list[str]:
        findings = self.checker.check(known=_known)
        _known.update(findings)
        return findings

    def restore(self) -> None:
        """Make every node run, reachable and with its service."""
        self.lab.forgive()
        environment.switch_on(self.lab)
        for node in self.lab.nodes:
            self.disarm(node)
        down = [node for node in self.lab.nodes if not node.volume.running()]
        self.start_services(*down)
        self._wait_reporting(self.lab.nodes)

    def restart_services(self, *nodes: LabNode, change: Callable[
            [LabNode], object] = lambda node: None) -> None:
        """Stop cinder-volume, then as ``start_services``."""
        for node in nodes:
            node.volume.kill()
        self.start_services(*nodes, change=change)

    def start_services(self, *nodes: LabNode, change: Callable[
            [LabNode], object] = lambda node: None) -> None:
        """Start cinder-volume and wait until it is up, also for Cinder.

        :param change: of its configuration, which is else as the lab has it,
            whatever a test has written
        """
        for node in nodes:
            node.volume.configure()
            change(node)
            node.volume.start()
        for node in nodes:
            node.volume.wait_up()
        self._wait_reporting(nodes)

    def _wait_reporting(self, nodes: Iterable[LabNode]) -> None:
        """Wait until Cinder counts on the services of nodes.

        One that was away for long is down until its first report, which
        comes some seconds after its start.
        """
        def reporting() -> bool:
            missing = {node.volume.host: node for node in nodes}
            for host, in self.lab.sql(
                    'select host from services where deleted = 0 and '
                    'updated_at > utc_timestamp() - interval '
                    f'{REPORTED_SECONDS} second'):
                missing.pop(host, None)
            for node in missing.values():
                node.volume.assert_running()
            return not missing
        self.wait('the services to report', reporting)

    def remove_volumes(self) -> None:
        """Detach and delete what the test made, in whatever state."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(self._remove, self.volumes))
        self.volumes = []

    def _remove(self, volume: str) -> None:
        rows = self.lab.sql('select id from volume_attachment where '
                            f"deleted = 0 and volume_id = '{volume}'")
        for attachment, in rows:
            with _gone_is_fine():
                self.lab.detach_volume(attachment)
        with _gone_is_fine():
            status = self.lab.volume(volume)['status']
            if status != 'available':
                self.lab.cinder(
                    'POST', f'/volumes/{volume}/action',
                    {'os-reset_status': {'status': 'available',
                                         'migration_status': 'none',
                                         'attach_status': 'detached'}})
            self.lab.delete_volume(volume)

    # -- what tests do ------------------------------------------------------

    def volume(self, node: LabNode, gib: int = 1) -> str:
        """A new volume on a node; its id."""
        volume = self.lab.create_volume(gib, node=node.number, wait=False)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        return volume

    def image(self, size: int = GIB) -> Image:
        """Contents for a volume."""
        return Image(self.lab.directory, size)

    def attach(self, volume: str, node: LabNode,
               attachment: str | None = None) -> AttachedVolume:
        """Attach as Nova does; again, if there is an attachment already."""
        return self.lab.attach_volume(volume, node.number, attachment)

    def attach_slowly(self, volume: str, lender: LabNode, borrower: LabNode,
                      attachment: str | None = None,
                      crawl: bool = False) -> AttachedVolume:
        """Attach elsewhere; the hydration stands still, or crawls.

        It has copied nothing before the brake is on.
        """
        self.freeze(borrower, faults.COPYING)
        at = self.attach(volume, borrower, attachment)
        self.wait_frozen(borrower)
        if crawl:
            self.crawl(at, lender)
        else:
            self.brake(at)
        self.thaw(borrower)
        return at

    def give_up_soon(self, node: LabNode) -> None:
        """Paths of a node fail 2 s after their lender, not in 120 s."""
        node.run('for session in /sys/class/iscsi_session/session*; '
                 'do echo 2 >$session/recovery_tmo; done')

    def detach(self, at: AttachedVolume) -> None:
        """Detach as Nova does."""
        self.lab.detach_volume(at.id)

    def filled(self, node: LabNode, gib: int = 1) -> tuple[str, Image]:
        """A detached volume on a node, filled."""
        volume = self.volume(node, gib)
        at = self.attach(volume, node)
        image = self.image(gib * self.gib)
        image.fill(at)
        self.detach(at)
        return volume, image

    def row(self, volume: str) -> checker.Row:
        """The volume as the database has it now (without attachments)."""
        (found,) = self.lab.sql(
            "select id, ifnull(_name_id, id), ifnull(host, ''), size, "
            "status, ifnull(provider_id, '') from volumes "
            f"where id = '{volume}'")
        return checker.Row(*found)

    def wait_complete(self, volume: str) -> None:
        """Wait until a volume hydrates no more."""
        self.wait(f'end of the hydration of {volume}',
                  lambda: ';' not in self.row(volume).provider_id)

    def assert_holds(self, image: Image, at: AttachedVolume) -> None:
        """The whole device has to hold this."""
        self.assertEqual('', image.difference(at))

    def checksum(self, at: AttachedVolume) -> str:
        """MD5 of the whole device, as it is on the disk."""
        return at.node.run(
            f'dd if={at.path} bs=4M '
            'iflag=direct status=none | md5sum',
            timeout=LONG_SECONDS).stdout.split()[0]

    def error_of(self, call: Callable[[], object]) -> str:
        """The text of the error that a request must end in."""
        error = self.assertRaises(RestError, call)
        return str(error)
