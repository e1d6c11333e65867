# SPDX-License-Identifier: Apache-2.0
"""A volume served where it is: over iSCSI to whoever is not a peer."""
from __future__ import annotations

import dataclasses
import typing
import uuid

from lab import CommandError, look
from lab.api import connector
from lab.attached import AttachedVolume
from lab.processes import wait_for
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

BLOCKS = base.GIB // 4096
INITIATOR = 'iqn.2026-01.lab.dmclone:'

# The disk of one initiator's session: two of them have one name by path.
_DISK = '''
for session in /sys/class/iscsi_session/session*; do
    [ "$(cat "$session/targetname" "$session/initiatorname" |
        tr "\\n" " ")" = "$1 $2 " ] || continue
    for disk in "$session"/device/target*/*/block/*; do
        [ ! -e "/dev/${disk##*/}" ] || echo "/dev/${disk##*/}"
    done
done
'''


@dataclasses.dataclass
class Client:
    """A host that logs in; its iSCSI is that of a node.

    ``face`` is open-iscsi's interface record with the initiator's name.
    """

    host: str
    node: LabNode
    face: str = 'default'

    @property
    def initiator(self) -> str:
        return INITIATOR + self.host

    @property
    def connector(self) -> dict[str, typing.Any]:
        """What such a host says about itself."""
        return {**connector(self.node.number), 'host': self.host,
                'initiator': self.initiator}

    def enter(self) -> None:
        """Give open-iscsi the name."""
        face = f'iscsiadm -m iface -I {self.face}'
        self.node.run(
            f'{face} -o new && {face} -o update -n iface.transport_name '
            f'-v tcp && {face} -o update -n iface.initiatorname '
            f'-v {self.initiator}')

    def leave(self) -> None:
        """Forget the name."""
        self.node.run(f'iscsiadm -m iface -I {self.face} -o delete',
                      check=False)

    def login(self, info: dict[str, typing.Any],
              password: str | None = None) -> str:
        """Log in; the disk's path.

        :raises CommandError: if the target refuses
        """
        target = (f'iscsiadm -m node -T {info["target_iqn"]} '
                  f'-p {info["target_portal"]} -I {self.face}')
        secret = password or info['auth_password']
        self.node.run(
            f'{target} -o new && {target} -o update '
            '-n node.session.auth.authmethod -v CHAP '
            f'-n node.session.auth.username -v {info["auth_username"]} '
            f'-n node.session.auth.password -v {secret} '
            '-n node.session.initial_login_retry_max -v 1 && '
            f'{target} --login')
        return str(wait_for(f'disk of {self.host}',
                            lambda: self.disk(info)))

    def disk(self, info: dict[str, typing.Any]) -> str:
        """The disk's path, '' without one."""
        return self.node.run(
            ['sh', '-c', _DISK, 'sh', info['target_iqn'],
             self.initiator]).stdout.strip()

    def logout(self, info: dict[str, typing.Any]) -> None:
        """End the session and forget the target, however far it came."""
        target = f'iscsiadm -m node -T {info["target_iqn"]} -I {self.face}'
        self.node.run(f'{target} --logout; {target} -o delete',
                      check=False)


class InPlaceTest(base.FunctionalTest):
    """Volumes of node 1; the others log in from node 2."""

    def client(self, host: str) -> Client:
        """A host that goes away with the test."""
        client = Client(host, self.node2, host)
        client.leave()
        client.enter()
        self.addCleanup(client.leave)
        return client

    def serve(self, volume: str, client: Client,
              instance: str | None = None) -> tuple[
                  str, dict[str, typing.Any]]:
        """Attach a volume to a client; attachment id, connection info."""
        body = {'volume_uuid': volume, 'connector': client.connector}
        if instance:
            body['instance_uuid'] = instance
        answer = self.lab.cinder('POST', '/attachments',
                                 {'attachment': body})['attachment']
        info = answer['connection_info']
        self.addCleanup(client.logout, info)
        self.lab.complete(answer['id'])
        return answer['id'], info

    def at(self, volume: str, client: Client, path: str) -> AttachedVolume:
        """A client's disk, for images."""
        return AttachedVolume('', volume, client.node, path)

    def exports(self) -> list[str]:
        """Targets and backstores of the driver on node 1."""
        return [name for name in (*look.targets(self.node1),
                                  *look.backstores(self.node1))
                if 'dmclone' in name]

    def test_a_host_that_is_no_peer_is_served_over_iscsi(self) -> None:
        volume, image = self.filled(self.node1)
        lv = self.row(volume).lv
        client = self.client('glance1')
        attachment, info = self.serve(volume, client)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.assertEqual('10.99.1.1:3260', info['target_portal'])
        path = client.login(info)
        image.write(self.at(volume, client, path), 5, 40, BLOCKS // 41)
        self.assertEqual('', image.difference(
            self.at(volume, client, path), size=64 << 20))
        client.logout(info)
        self.lab.detach_volume(attachment)
        # Cinder lists the attachment a moment longer than the driver serves
        # it; a look at that moment finds an export missing.
        self.wait('the end of the export', lambda: (
            info['target_iqn'] not in self.exports()
            and f'dmclone-serve-{lv}' not in look.devices(self.node1)))
        self.assertEqual('node1', self.row(volume).node)
        self.assert_holds(image, self.attach(volume, self.node1))

    def test_only_who_may_log_in_can(self) -> None:
        volume = self.volume(self.node1)
        client, other = self.client('glance1'), self.client('glance2')
        attachment, info = self.serve(volume, client)
        self.addCleanup(other.logout, info)
        self.assertRaises(CommandError, client.login, info, 'x' * 16)
        client.logout(info)
        # With the right password, under another name.
        self.assertRaises(CommandError, other.login, info)
        other.logout(info)
        client.login(info)
        client.logout(info)
        self.lab.detach_volume(attachment)
        self.assertRaises(CommandError, client.login, info)

    @environment.only_long
    def test_a_detach_ends_only_its_own_connection(self) -> None:
        volume, image = self.filled(self.node1)
        instance = str(uuid.uuid4())
        first, second = self.client('glance1'), self.client('glance2')
        attachment1, info1 = self.serve(volume, first, instance)
        attachment2, info2 = self.serve(volume, second, instance)
        first.login(info1)
        path = second.login(info2)
        self.lab.detach_volume(attachment1)
        # Also without a logout: a host may have died.
        self.assertRaises(CommandError, self._relogin, first, info1)
        self.assertEqual(path, second.disk(info2))
        image.write(self.at(volume, second, path), 9, 20, BLOCKS // 21)
        second.logout(info2)
        self.lab.detach_volume(attachment2)
        self.assertNotIn(info2['target_iqn'], self.exports())
        self.assert_holds(image, self.attach(volume, self.node1))

    @staticmethod
    def _relogin(client: Client, info: dict[str, typing.Any]) -> None:
        client.logout(info)
        client.login(info)

    def test_a_backup_on_a_peer_does_not_move_the_volume(self) -> None:
        """Cinder's own services use the calls without an attachment."""
        volume, image = self.filled(self.node1)
        self._act(volume, 'os-reserve')
        answer = self._act(volume, 'os-initialize_connection',
                           connector=connector(2))
        found = answer['connection_info']
        self.assertEqual('iscsi', found['driver_volume_type'])
        info = found['data']
        client = Client('node2', self.node2)
        self.addCleanup(client.logout, info)
        at = self.at(volume, client, client.login(info))
        self.assertEqual('', image.difference(at, size=64 << 20))
        image.write(at, 1, 10, BLOCKS // 11)
        self.assertEqual('node1', self.row(volume).node)
        client.logout(info)
        self._act(volume, 'os-terminate_connection', connector=connector(2))
        self._act(volume, 'os-unreserve')
        self.wait('end of the export', lambda: info['target_iqn'] not in
                  self.exports())
        self.assert_holds(image, self.attach(volume, self.node1))

    def test_an_export_is_back_after_a_reboot_of_its_node(self) -> None:
        volume, image = self.filled(self.node1)
        client = self.client('glance1')
        attachment, info = self.serve(volume, client)
        path = client.login(info)
        at = self.at(volume, client, path)
        image.write(at, 3, 10, BLOCKS // 11)
        self.node1.reboot()
        self.assertEqual([], self.exports())
        self.start_services(self.node1)
        # The session that stood is taken up again. After its own time-out
        # the client answers with errors until then.
        self.wait('the session to be taken up again', lambda: client.node.run(
            f'dd if={path} of=/dev/null bs=4096 count=1 iflag=direct',
            check=False).code == 0)
        self.assertEqual('', image.difference(at, size=64 << 20))
        image.write(at, 4, 10, BLOCKS // 11)
        client.logout(info)
        self.lab.detach_volume(attachment)
        self.assert_holds(image, self.attach(volume, self.node1))

    def _act(self, volume: str, action: str, **more: typing.Any) -> (
            typing.Any):
        return self.lab.cinder('POST', f'/volumes/{volume}/action',
                               {action: more})
