# SPDX-License-Identifier: Apache-2.0
"""What every functional test starts from and is measured by."""
from __future__ import annotations

import concurrent.futures
import dataclasses
import random
import typing
from collections.abc import Callable

import testtools

from lab import LabError, RestError
from lab.processes import wait_for
from tests.functional import checker
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

GIB = 1 << 30
FAULT_FOLDER = '/run/cinder'

# The disk of a target's session: the udev rule keeps links by path away.
_DISK = '''
for session in /sys/class/iscsi_session/session*; do
    [ "$(cat "$session/targetname")" = "$1" ] || continue
    for disk in "$session"/device/target*/*/block/*; do
        [ ! -e "/dev/${disk##*/}" ] || echo "/dev/${disk##*/}"
    done
done
'''

# Findings of tests that failed: later ones are not blamed for them.
_known: set[str] = set()


@dataclasses.dataclass
class Attachment:
    """An attachment as a test keeps it."""

    id: str
    volume: str
    node: LabNode
    path: str


class Image:
    """What a volume has to contain."""

    def __init__(self, lab_folder: str, size: int = GIB) -> None:
        self.seed = random.randrange(1, 10**6)
        self.size = size
        self.over: list[list[int]] = []
        self._program = f'/usr/bin/python3 {lab_folder}/blocks.py'

    def fill(self, at: Attachment) -> None:
        """Write the whole device."""
        at.node.run(f'{self._program} fill {at.path} {self.seed} '
                    f'{self.size}', timeout=300)

    def write_command(self, at: Attachment, first: int, count: int,
                      step: int = 1) -> str:
        """A command that writes blocks; it counts as written from now."""
        seed = random.randrange(1, 10**6)
        self.over.append([seed, first, count, step])
        return (f'{self._program} write {at.path} {seed} {first} {count} '
                f'{step}')

    def write(self, at: Attachment, first: int, count: int,
              step: int = 1) -> None:
        """Write 4 KiB blocks and flush."""
        at.node.run(self.write_command(at, first, count, step), timeout=300)

    def difference(self, at: Attachment, first: int = 0,
                   size: int | None = None) -> str:
        """How the device differs from what it has to contain, in words."""
        return self._compare(at, f'verify {at.path} {self.seed} {first} '
                             f'{size or self.size}')

    def blocks_difference(self, at: Attachment) -> str:
        """The same for the blocks of ``write`` alone."""
        return self._compare(at, f'blocks {at.path}')

    def _compare(self, at: Attachment, words: str) -> str:
        over = ' '.join(','.join(str(n) for n in words)
                        for words in self.over)
        result = at.node.run(f'{self._program} {words} {over}', check=False,
                             timeout=300)
        return result.stderr.strip()


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
             f'{target} --login', timeout=90)
    return str(wait_for(
        f'disk of {info["target_iqn"]} on {node.name}', lambda: node.run(
            ['sh', '-c', _DISK, 'sh', info['target_iqn']]).stdout.strip()))


def logout(node: LabNode, info: dict[str, typing.Any]) -> None:
    """Undo ``login``, however far it came."""
    target = f'iscsiadm -m node -T {info["target_iqn"]}'
    node.run(f'{target} --logout; {target} -o delete', check=False,
             timeout=90)


class FunctionalTest(testtools.TestCase):
    """A test in the lab; afterwards the lab must be clean.

    ``node1`` and ``node2`` are the nodes.
    """

    def setUp(self) -> None:
        super().setUp()
        self.lab = environment.lab()
        self.node1, self.node2 = self.lab.nodes[:2]
        self.checker = checker.Checker(self.lab)
        self.volumes: list[str] = []
        self.addOnException(self._keep_logs)
        self.addCleanup(self._finish)
        self.restore()

    # -- after the test -----------------------------------------------------

    def _keep_logs(self, info: typing.Any) -> None:
        try:
            self.checker.look()
        except (LabError, OSError) as error:
            self.checker.states += f'\n{error!r}'
        place = environment.keep_logs(self.id(), self.checker.states)
        self.addDetail('logs', testtools.content.text_content(str(place)))

    def _finish(self) -> None:
        """Check what the test left, remove its volumes, check again."""
        self.restore()
        findings = self._new_findings()
        self.remove_volumes()
        findings += self._new_findings()
        self.assertEqual([], findings, 'left behind')

    def _new_findings(self) -> list[str]:
        findings = self.checker.check(known=_known)
        _known.update(findings)
        return findings

    def restore(self) -> None:
        """Make every node run, reachable and with its service."""
        for node in self.lab.nodes:
            if not node.running():
                node.start()
                node.wait_booted()
            node.heal()
            node.run(f'rm -f {FAULT_FOLDER}/dmclone-*')
        down = [node for node in self.lab.nodes if not node.volume.running()]
        self.start_services(*down)

    def start_services(self, *nodes: LabNode) -> None:
        """Start cinder-volume and wait until it is up."""
        for node in nodes:
            node.volume.start()
        for node in nodes:
            node.volume.wait_up()

    def remove_volumes(self) -> None:
        """Detach and delete what the test made, in whatever state."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(self._remove, self.volumes))
        self.volumes = []

    def _remove(self, volume: str) -> None:
        rows = self.lab.sql('select id from volume_attachment where '
                            f"deleted = 0 and volume_id = '{volume}'")
        for attachment, in rows:
            self.lab.detach_volume(attachment)
        try:
            status = self.lab.volume(volume)['status']
            if status != 'available':
                self.lab.cinder(
                    'POST', f'/volumes/{volume}/action',
                    {'os-reset_status': {'status': 'available',
                                         'migration_status': 'none',
                                         'attach_status': 'detached'}})
            self.lab.delete_volume(volume)
        except RestError as error:
            if error.status != 404:
                raise

    # -- what tests do ------------------------------------------------------

    def wait(self, what: str, condition: Callable[[], object],
             timeout: float = 180) -> typing.Any:
        """The first true value of a condition."""
        return wait_for(what, condition, timeout, 0.2)

    def volume(self, node: LabNode, gib: int = 1) -> str:
        """A new volume on a node; its id."""
        volume = self.lab.create_volume(gib, node=node.number, wait=False)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        return volume

    def image(self, size: int = GIB) -> Image:
        """Contents for a volume."""
        return Image(str(self.lab.directory), size)

    def attach(self, volume: str, node: LabNode,
               attachment: str | None = None) -> Attachment:
        """Attach as Nova does; again, if there is an attachment already."""
        attachment = attachment or self.lab.reserve(volume)
        info = self.lab.connect(attachment, node.number)
        self.lab.complete(attachment)
        return Attachment(attachment, volume, node, info['device_path'])

    def detach(self, at: Attachment) -> None:
        """Detach as Nova does."""
        self.lab.detach_volume(at.id)

    def filled(self, node: LabNode) -> tuple[str, Image]:
        """A detached volume on a node, filled."""
        volume = self.volume(node)
        at = self.attach(volume, node)
        image = self.image()
        image.fill(at)
        self.detach(at)
        return volume, image

    def row(self, volume: str) -> checker.Row:
        """The volume as the database has it now (without attachments)."""
        (found,) = self.lab.sql(
            "select id, ifnull(_name_id, id), ifnull(host, ''), size, "
            "status, ifnull(provider_id, '') from volumes "
            f"where id = '{volume}'")
        return checker.Row(*found, ())

    def wait_complete(self, volume: str, timeout: float = 240) -> None:
        """Wait until a volume hydrates no more."""
        self.wait(f'end of the hydration of {volume}',
                  lambda: ';' not in self.row(volume).provider_id, timeout)

    def assert_holds(self, image: Image, at: Attachment) -> None:
        """The whole device has to hold this."""
        self.assertEqual('', image.difference(at))

    def checksum(self, at: Attachment) -> str:
        """MD5 of the whole device, as it is on the disk."""
        return at.node.run(
            f'dd if={at.path} bs=4M '
            'iflag=direct status=none | md5sum', timeout=300).stdout.split(
            )[0]

    def hydrated(self, volume: str, node: LabNode) -> tuple[int, int] | None:
        """Regions hydrated and in all; None without a clone."""
        name = f'dmclone-clone-{self.row(volume).lv}'
        words = node.run(['dmsetup', 'status', '--noflush', name],
                         check=False).stdout.split()
        if len(words) < 7:
            return None
        done, total = words[6].split('/')
        return int(done), int(total)

    def assert_hydrating(self, volume: str, node: LabNode) -> None:
        """There must be regions that are not here yet."""
        found = self.hydrated(volume, node)
        self.assertIsNotNone(found, 'no clone')
        assert found is not None
        self.assertLess(*found)

    def brake(self, volume: str, lender: LabNode, borrower: LabNode,
              milliseconds: int = 100) -> None:
        """Make a hydration that has just begun all but stand still.

        Nothing of the product is changed: the clone copies one region at a
        time, and the lender answers each read late.
        """
        lv = self.row(volume).lv
        self._pace(lv, borrower, 1, 1)
        if milliseconds:
            lender.run(
                f'name=$(dmsetup ls | grep -o "dmclone-loan-.*-{lv}"); '
                'set -- $(dmsetup table "$name"); '
                f'echo "0 $2 delay $4 $5 {milliseconds}" | '
                'dmsetup load --readonly "$name" && dmsetup resume "$name"')

    def release(self, volume: str, lender: LabNode,
                borrower: LabNode) -> None:
        """Let it run again; what is gone needs no release."""
        lv = self.row(volume).lv
        lender.run(
            f'name=$(dmsetup ls | grep -o "dmclone-loan-.*-{lv}"); '
            'set -- $(dmsetup table "$name"); [ "$3" != delay ] || { '
            'echo "0 $2 linear $4 $5" | dmsetup load --readonly "$name" && '
            'dmsetup resume "$name"; }', check=False)
        self._pace(lv, borrower, 256, 64, check=False)

    @staticmethod
    def _pace(lv: str, borrower: LabNode, threshold: int, batch: int,
              check: bool = True) -> None:
        name = f'dmclone-clone-{lv}'
        borrower.run(
            f'dmsetup message {name} 0 hydration_threshold {threshold} && '
            f'dmsetup message {name} 0 hydration_batch_size {batch}',
            check=check)

    def error_of(self, call: Callable[[], object]) -> str:
        """The text of the error that a request must end in."""
        error = self.assertRaises(RestError, call)
        return str(error)

    # -- faults -------------------------------------------------------------

    def arm(self, node: LabNode, point: str) -> None:
        """Let cinder-volume die at a point (see lab/faulty.py), once."""
        self._arm(node, 'fault', point)

    def freeze(self, node: LabNode, point: str) -> None:
        """Let cinder-volume wait at a point until ``thaw``."""
        self._arm(node, 'freeze', point)

    @staticmethod
    def _arm(node: LabNode, kind: str, point: str) -> None:
        folder = FAULT_FOLDER
        node.run(f'install -d -o cinder -g cinder {folder}; '
                 f'echo "{point}" >{folder}/.draft; '
                 f'mv {folder}/.draft {folder}/dmclone-{kind}')

    def wait_frozen(self, node: LabNode) -> None:
        """Wait until the point of ``freeze`` is reached."""
        self.wait(f'{node.name} to reach the point', lambda: node.run(
            f'test -e {FAULT_FOLDER}/dmclone-hold', check=False).code == 0)

    @staticmethod
    def thaw(node: LabNode) -> None:
        """Let a frozen call go on."""
        node.run(f'rm -f {FAULT_FOLDER}/dmclone-hold')

    def forget_requests(self) -> None:
        """Let cinder-api drop requests whose answers will not come.

        It holds a lock for each until the call times out.
        """
        self.lab.cinder_api.kill()
        self.lab.cinder_api.start()

    def wait_dead(self, node: LabNode) -> None:
        """Wait until a fault has ended cinder-volume."""
        self.wait(f'end of cinder-volume on {node.name}',
                  lambda: not node.volume.running())
