# SPDX-License-Identifier: Apache-2.0
"""A lab whose volumes are files and whose Cinder is a dictionary.

What runs in a node is run by this machine, on the files.
"""
from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import typing
import uuid
from collections.abc import Sequence
from unittest import mock

from lab import config, ledger, programs
from lab.agent import Result
from lab.api import Api
from lab.network import Network
from lab.rest import RestError

# What each area of a volume has, and the longest pause of its writers.
AREA, PAUSE = 1 << 20, 0.02

Row = dict[str, typing.Any]


def _program(verb: str, path: str, owner: str, size: str,
             *more: str) -> str:
    """What the program of lab.ledger says, here and now."""
    program = ledger.Program(path, int(owner), int(size))
    said: list[str] = []
    with program._device, mock.patch.object(ledger, '_say', said.append):
        getattr(program, verb)(*(int(word) if word.isdigit() else word
                                 for word in more))
    return ''.join(f'{line}\n' for line in said)


class Process:
    """A command that goes on, as lab.agent.Command.

    :ivar silent: whether its node is off, and says nothing of it
    """

    def __init__(self, argv: Sequence[str], folder: pathlib.Path) -> None:
        self.silent = False
        self._path = folder / f'{uuid.uuid4()}.out'
        self._errors = self._path.with_suffix('.err')
        with self._path.open('wb') as out, self._errors.open('wb') as errors:
            self._process = subprocess.Popen(
                argv, stdout=out, stderr=errors, start_new_session=True,
                # The checkout's package must not be in the way.
                env={'PATH': os.environ['PATH']})

    def poll(self) -> Result | None:
        if self._process.poll() is None or self.silent:
            return None
        return Result(self.output(), self._errors.read_text(),
                      self._process.returncode)

    def output(self) -> str:
        return self._path.read_text()

    def signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


class Service:
    """cinder-volume, or a part of the control plane."""

    def __init__(self, name: str, log: pathlib.Path) -> None:
        self.host = f'{name}@{config.BACKEND}'
        self.log = log
        self.log.touch()
        self.away = False
        self.ended = 0

    def stop(self) -> None:
        self.away = True
        self.ended += 1

    kill = stop

    def start(self, wait: bool = False) -> None:
        self.away = False

    def assert_running(self) -> None:
        assert not self.away


class Node:
    """A node; its devices are links to files."""

    def __init__(self, number: int, folder: pathlib.Path) -> None:
        self.number = number
        self.name = f'node{number}'
        self.folder = folder
        self.volume = Service(self.name, folder / f'{self.name}.log')
        self.running: list[Process] = []
        self.cut = False

    def run(self, command: Sequence[str], check: bool = True,
            timeout: float = 0) -> Result:
        words = list(command)
        if words[0] == 'blockdev':
            return Result(f'{os.stat(words[-1]).st_size}\n', '', 0)
        if words[:2] == ['sh', '-c']:
            return Result('7 1000 10 1\n', '', 0)
        if 'lab.ledger' in words:
            return Result(_program(*words[words.index('lab.ledger') + 1:]),
                          '', 0)
        assert words[0] == 'test'
        return Result('', '', not os.path.exists(words[-1]))

    def popen(self, command: Sequence[str]) -> Process:
        self.running.append(Process(command, self.folder))
        return self.running[-1]

    def hold(self, device: str) -> Process:
        assert os.path.exists(device)
        return self.popen(['sleep', '60'])

    def partition(self) -> None:
        self.cut = True

    def heal(self) -> None:
        self.cut = False

    def power_cut(self) -> None:
        for process in self.running:
            process.silent = True
            process.kill()
        self.volume.stop()

    def start(self) -> None:
        pass

    wait_booted = start


class Cloud(Api):
    """The lab.

    :ivar mistakes: names of what it does wrong, see ``_wrong``
    :ivar failing: how many of the next requests fail that would change
        something; each has been done by then
    :ivar forgetting: how much of what is made next nobody works on
    """

    def __init__(self, folder: pathlib.Path, mistakes: str = '') -> None:
        super().__init__(Network('none'))
        self.directory = folder
        programs.install(folder)
        program = folder / 'programs/lab/ledger.py'
        text = program.read_text().replace('AREA = 8 << 20', f'AREA = {AREA}')
        program.write_text(text.replace('PAUSE = 1.0', f'PAUSE = {PAUSE}'))
        self.nodes = typing.cast(typing.Any, [
            Node(number, folder) for number in (1, 2, 3)])
        self.mariadb, self.rabbitmq, self.cinder_api = (
            Service(name, folder / f'{name}.log')
            for name in ('mariadb', 'rabbitmq', 'api'))
        self.mistakes = set(mistakes.split())
        self.failing = self.forgetting = 0
        self.rows: dict[str, dict[str, Row]] = {
            'volumes': {}, 'snapshots': {}, 'attachments': {}}
        # Copies that a mistake makes too late.
        self._late: dict[str, str] = {}

    def close(self) -> None:
        """End whatever still runs."""
        for node in self.nodes:
            for process in typing.cast(typing.Any, node).running:
                process.kill()

    def unlimited(self) -> None:
        pass

    def _wrong(self, mistake: str) -> bool:
        return mistake in self.mistakes

    def sql(self, statement: str) -> list[tuple[typing.Any, ...]]:
        """The statements of lab.soak, as they are."""
        if 'from services' in statement:
            return [(node.volume.host,) for node in self.nodes]
        wanted = re.findall(r"'([0-9a-f-]{36})'", statement)
        if 'from volume_attachment' in statement:
            return [(row['id'], row['attach_status']) for row
                    in self.rows['attachments'].values()
                    if row['volume_id'] in wanted]
        if 'select host' in statement:
            return [(f'{self.rows["volumes"][found]["host"]}#pool',)
                    for found in wanted]
        table = re.findall('from (volumes|snapshots)', statement)[0]
        return [(row['id'], row['status'])
                for row in self.rows[table].values()]

    # -- requests -----------------------------------------------------------

    def cinder(self, method: str, path: str, body: typing.Any = None,
               microversion: str = '3.71', timeout: float = 600
               ) -> typing.Any:
        if self.mariadb.away:
            raise RestError(f'{method} {path}', 500, 'no database')
        _, kind, *more = path.partition('?')[0].split('/')
        verb = f'_{method.lower()}_{kind}'
        if more[1:] == ['action']:
            verb = f'_{next(iter(body))}'.replace('-', '_')
        found = getattr(self, verb)(
            *more[:1], *([next(iter(body.values()))] if body else []),
            **({'name': path.rpartition('name=')[2]} if '?' in path else {}))
        if method != 'GET' and self.failing:
            self.failing -= 1
            raise RestError(f'{method} {path}', 500, 'the answer was lost')
        return found

    def _refuse(self, truth: object, why: str, status: int = 400) -> None:
        if truth:
            raise RestError('request', status, why)

    def _row(self, kind: str, found: str) -> Row:
        self._refuse(found not in self.rows[kind], 'not found', 404)
        return self.rows[kind][found]

    def _get(self, kind: str, found: str | None,
             name: str | None) -> typing.Any:
        if found:
            return {kind[:-1]: self._row(kind, found)}
        return {kind: [row for row in self.rows[kind].values()
                       if row['name'] == name]}

    def _get_volumes(self, found: str | None = None,
                     name: str | None = None) -> typing.Any:
        return self._get('volumes', found, name)

    def _get_snapshots(self, found: str | None = None,
                       name: str | None = None) -> typing.Any:
        return self._get('snapshots', found, name)

    def _get_attachments(self, found: str) -> typing.Any:
        return {'attachment': self._row('attachments', found)}

    # -- volumes and snapshots ----------------------------------------------

    def file(self, found: str) -> pathlib.Path:
        """What a volume or a snapshot has."""
        late = self._late.pop(found, None)
        if late:
            self._copy(late, found)
        return self.directory / f'{found}.img'

    def _copy(self, source: str, target: str) -> None:
        """Copy the contents as they are at one moment."""
        running = [process for node in self.nodes for process
                   in typing.cast(typing.Any, node).running]
        for process in running:
            process.signal(signal.SIGSTOP)
        subprocess.run(['cp', '--sparse=always', self.file(source),
                        self.file(target)], check=True)
        for process in running:
            process.signal(signal.SIGCONT)

    def _new(self, kind: str, name: str, size: int, host: str,
             source: str | None) -> Row:
        row: Row = {'id': str(uuid.uuid4()), 'name': name, 'size': size,
                    'status': 'available', 'host': host}
        self.rows[kind][row['id']] = row
        if not source:
            self.file(row['id']).touch()
        elif self._wrong('late') and kind == 'snapshots':
            self._late[row['id']] = source
        elif self._wrong('shared') and kind == 'volumes':
            os.link(self.file(source), self.file(row['id']))
        else:
            self._copy(source, row['id'])
        if kind == 'volumes':
            os.truncate(self.file(row['id']), size << 27)
        if self.forgetting:
            self.forgetting -= 1
            row['status'] = 'creating'
        return row

    def _post_volumes(self, body: Row) -> typing.Any:
        source = body.get('source_volid') or body.get('snapshot_id')
        if source:
            kind = 'volumes' if 'source_volid' in body else 'snapshots'
            self._refuse(self._row(kind, source)['size'] > body['size'],
                         'too small')
        host = self.nodes[0].volume.host
        return {'volume': self._new('volumes', body.get('name', ''),
                                    body['size'], host, source)}

    def _post_snapshots(self, body: Row) -> typing.Any:
        volume = self._row('volumes', body['volume_id'])
        row = self._new('snapshots', body['name'], volume['size'],
                        volume['host'], volume['id'])
        row['volume_id'] = volume['id']
        if self._wrong('error'):
            row['status'] = 'error'
        return {'snapshot': row}

    def _snapshots(self, volume: str) -> list[Row]:
        return [row for row in self.rows['snapshots'].values()
                if row['volume_id'] == volume]

    def _delete_volumes(self, found: str) -> None:
        row = self._row('volumes', found)
        self._refuse(row['status'] != 'available', 'in use')
        self._refuse(self._snapshots(found) and not self._wrong('unasked'),
                     'it has snapshots')
        self._delete('volumes', found)

    def _delete_snapshots(self, found: str) -> None:
        self._row('snapshots', found)
        self._delete('snapshots', found)

    def _delete(self, kind: str, found: str) -> None:
        if self._wrong('stays'):
            self.rows[kind][found]['status'] = 'error_deleting'
            return
        for late, source in list(self._late.items()):
            if source == found:
                self.file(late)
        self.file(found).unlink()
        del self.rows[kind][found]

    def _os_reset_status(self, found: str, body: Row) -> None:
        for kind in ('volumes', 'snapshots'):
            if found in self.rows[kind]:
                self.rows[kind][found]['status'] = body['status']

    def _os_extend(self, found: str, body: Row) -> None:
        row = self._row('volumes', found)
        self._refuse(body['new_size'] <= row['size'], 'not larger')
        row['size'] = body['new_size']
        if not self._wrong('small'):
            os.truncate(self.file(found), row['size'] << 27)

    def _revert(self, found: str, body: Row) -> None:
        row, latest = self._row('volumes', found), self._snapshots(found)[-1]
        self._refuse(latest['id'] != body['snapshot_id'], 'not the latest')
        self._refuse(latest['size'] != row['size'], 'another size')
        self._refuse(row['status'] != 'available', 'in use', 409)
        if self._wrong('said'):
            self.mistakes.remove('said')
            service = next(node.volume for node in self.nodes
                           if node.volume.host == row['host'])
            with service.log.open('a') as log:
                log.write(f'Volume {found} was not reverted to snapshot '
                          f'{latest["id"]}: dmclone_max_copies\n')
        elif not self._wrong('unreverted'):
            self._copy(latest['id'], found)
            os.truncate(self.file(found), row['size'] << 27)

    # -- attachments --------------------------------------------------------

    def _post_attachments(self, body: Row) -> typing.Any:
        volume = self._row('volumes', body['volume_uuid'])
        others = [row for row in self.rows['attachments'].values()
                  if row['volume_id'] == volume['id']]
        self._refuse(any(row['instance'] != body['instance_uuid']
                         for row in others), 'in-use')
        row = {'id': str(uuid.uuid4()), 'volume_id': volume['id'],
               'instance': body['instance_uuid'],
               'attach_status': 'reserved'}
        self.rows['attachments'][row['id']] = row
        volume['status'] = 'in-use'
        if 'connector' in body:
            return self._put_attachments(row['id'], body)
        return {'attachment': row}

    def _put_attachments(self, found: str, body: Row) -> typing.Any:
        row = self._row('attachments', found)
        self._refuse(any(
            other['volume_id'] == row['volume_id'] and other is not row
            for other in self.rows['attachments'].values())
            and 'instance_uuid' not in body, 'duplicate connectors', 409)
        host = body['connector']['host']
        path = self.directory / f'{host}-{row["volume_id"]}'
        if not path.exists():
            path.symlink_to(self.file(row['volume_id']))
        row['connection_info'] = {'device_path': str(path)}
        row['attach_status'] = 'attaching'
        self.rows['volumes'][row['volume_id']]['host'] = (
            f'{host}@{config.BACKEND}')
        return {'attachment': row}

    def _os_complete(self, found: str, body: None = None) -> None:
        self._row('attachments', found)['attach_status'] = 'attached'

    def _delete_attachments(self, found: str) -> None:
        row = self._row('attachments', found)
        del self.rows['attachments'][found]
        volume = self.rows['volumes'][row['volume_id']]
        if not any(other['volume_id'] == volume['id']
                   for other in self.rows['attachments'].values()):
            volume['status'] = 'available'
        path = pathlib.Path(row['connection_info']['device_path'])
        if self._wrong('loses'):
            with path.open('r+b') as file:
                file.write(bytes(AREA))
        path.unlink()
