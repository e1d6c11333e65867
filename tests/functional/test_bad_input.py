# SPDX-License-Identifier: Apache-2.0
"""What cannot be done is refused clearly, and changes nothing."""
from __future__ import annotations

import concurrent.futures
import dataclasses
import typing

from lab import FAULTY_DRIVER, logs, look
from lab.api import connector
from lab.attached import AttachedVolume
from tests.functional import base
from tests.functional import environment

BLOCKS = base.GIB // 4096
GROUP = look.GROUP

# Every CHAP password that a node has: as a target, and as an initiator.
_SECRETS = '''
cat /sys/kernel/config/target/iscsi/iqn.*/tpgt_*/acls/*/auth/password
for root in /etc/iscsi /var/lib/iscsi; do
    find "$root"/nodes -type f -exec \\
        sed -n 's/^node.session.auth.password = //p' {} + 2>/dev/null
done
'''


class BadInputTest(base.FunctionalTest):
    """Each test ends with the volume in use where it was before."""

    def setUp(self) -> None:
        super().setUp()
        self.subject = self.volume(self.node1)
        self.contents = self.image()
        at = self.attach(self.subject, self.node1)
        self.contents.write(at, 0, 20, BLOCKS // 20)
        self.detach(at)
        self.before = self.row(self.subject)

    def connect(self, attachment: str, **fields: typing.Any) -> typing.Any:
        """Give an attachment a connector; None leaves a field out."""
        body = {**connector(2), **fields}
        return self.lab.cinder(
            'PUT', f'/attachments/{attachment}', {'attachment': {
                'connector': {key: value for key, value in body.items()
                              if value is not None}}})['attachment']

    def assert_refused(self, attachment: str, *reasons: str,
                       **fields: typing.Any) -> None:
        """A connection must fail with this text; the user is told."""
        known = len(self.messages())
        error = self.error_of(lambda: self.connect(attachment, **fields))
        for reason in reasons:
            self.assertIn(reason, error)
        self.assertEqual(known + 1, len(self.messages()))
        self.assertEqual(self.before, dataclasses.replace(
            self.row(self.subject), status=self.before.status))

    def messages(self) -> list[str]:
        """What the user was told about the volume."""
        found = self.lab.cinder('GET', '/messages')['messages']
        return [message['user_message'] for message in found
                if message['resource_uuid'] == self.subject]

    def assert_usable(self) -> None:
        """It can be used on its node, and has what it had."""
        self.assertEqual(self.before.host, self.row(self.subject).host)
        at = self.attach(self.subject, self.node1)
        self.assertEqual('', self.contents.blocks_difference(at))
        self.contents.write(at, 1, 5, BLOCKS // 5)
        self.assertEqual('', self.contents.blocks_difference(at))

    def test_connectors_that_name_nobody_or_a_node_wrongly(self) -> None:
        """One of each kind; unit tests have the others."""
        attachment = self.lab.reserve(self.subject)
        error = self.error_of(
            lambda: self.connect(attachment, host={'name': 'node2'}))
        self.assertIn(': 400 ', error)
        self.assertIn('host as a text', error)
        self.assert_refused(
            attachment, self.subject, 'node1@dmclone',
            'host elsewhere has no cinder-volume service of this backend',
            'names no iSCSI initiator', host='elsewhere', initiator=None)
        for node in (1, 2):
            self.assert_refused(
                attachment, 'nova.conf (compute.example now)',
                f'cinder.conf (node{node} now)', **{
                    **connector(node), 'host': 'compute.example'})
        self.lab.detach_volume(attachment)
        self.assert_usable()

    @environment.only_long
    def test_a_peer_that_is_down(self) -> None:
        self.node2.volume.kill()
        attachment = self.lab.reserve(self.subject)
        # Cinder has not noticed it yet, however slow this is.
        self._set_last_report('+ interval 1 hour')
        self.assert_refused(attachment, 'node2@dmclone',
                            'did not answer FindRoom')
        # Now it has.
        self._set_last_report('- interval 1 hour')
        self.assert_refused(
            attachment, 'the cinder-volume service of node2@dmclone is down',
            'the volume stays where it is')
        self.lab.detach_volume(attachment)
        self.assert_usable()

    def _set_last_report(self, distance: str) -> None:
        """When node 2 was last heard of, as seen from now."""
        self.lab.sql(f'update services set updated_at = utc_timestamp() '
                     f"{distance} where host = 'node2@dmclone'")

    def _wait_room(self) -> None:
        """Wait until the scheduler knows that node 2 has room again."""
        self.wait('room', lambda: [
            pool for pool in self.lab.cinder(
                'GET', '/scheduler-stats/get_pools?detail=true')['pools']
            if pool['name'].startswith('node2@')
            and pool['capabilities']['free_capacity_gb'] > 50])

    def _fill(self) -> str:
        """Leave no room on node 2; the LV that takes it."""
        filler = f'{GROUP}/filler'
        # The tests after this one need it.
        self.addCleanup(self._wait_room)
        self.addCleanup(self.node2.run, f'lvremove -qy {filler}',
                        check=False)
        self.node2.run('lvcreate -qy -Wn -Zn -an -l 100%FREE -n filler '
                       f'{GROUP}')
        return filler

    @environment.only_long
    def test_a_server_on_a_full_node_is_served(self) -> None:
        """``dmclone_no_room = serve``: from where the volume is."""
        self.addCleanup(self.restart_services, self.node1)
        self.restart_services(self.node1, change=lambda node: (
            base.set_options(node, dmclone_no_room='serve')))
        self._fill()
        attachment = self.lab.reserve(self.subject)
        info = self.lab.connect(attachment, 2)
        self.assertEqual('iscsi', info['driver_volume_type'])
        self.lab.complete(attachment)
        self.addCleanup(base.logout, self.node2, info)
        at = AttachedVolume(attachment, self.subject, self.node2,
                            base.login(self.node2, info))
        self.assertEqual('', self.contents.blocks_difference(at))
        self.contents.write(at, 5, 40, 3)
        self.assertEqual('node1', self.row(self.subject).node)
        base.logout(self.node2, info)
        self.lab.detach_volume(attachment)
        self.assertEqual('', self.contents.blocks_difference(
            self.attach(self.subject, self.node1)))

    def test_no_room_on_the_destination(self) -> None:
        filler = self._fill()
        attachment = self.lab.reserve(self.subject)
        self.assert_refused(attachment, 'node2@dmclone',
                            'has not enough room', '0 are free')
        # Room for the volume, but not for what a move needs besides.
        self.node2.run(f'lvreduce -qfy -L -{base.GIB}b {filler}')
        self.assert_refused(attachment, 'node2@dmclone',
                            'has not enough room',
                            f'the volume needs {base.GIB} bytes')
        self.node2.run(f'lvremove -qy {filler}')
        # The same attachment can be tried again.
        self.lab.connect(attachment, 2)
        self.assertEqual('node2', self.row(self.subject).node)
        self.lab.detach_volume(attachment)
        self.wait_complete(self.subject)
        self.assertEqual('', self.contents.blocks_difference(
            self.attach(self.subject, self.node2)))

    def test_a_volume_in_a_group(self) -> None:
        """Whoever attaches it elsewhere is told why that fails."""
        kind = self.lab.cinder('POST', '/group_types', {'group_type': {
            'name': 'plain'}})['group_type']['id']
        self.addCleanup(self.lab.cinder, 'DELETE', f'/group_types/{kind}')
        group = self._group(kind)
        self._change_group(group, 'add_volumes')
        attachment = self.lab.reserve(self.subject)
        self.assert_refused(attachment, self.subject,
                            'it is in a group of Cinder')
        self.lab.detach_volume(attachment)
        self._change_group(group, 'remove_volumes')
        self.assert_usable()

    def _group(self, kind: str) -> str:
        """A group on node 1."""
        types = [each['id'] for each in self.lab.cinder(
            'GET', '/types')['volume_types']]
        group = self.lab.cinder('POST', '/groups', {'group': {
            'name': 'group', 'group_type': kind, 'volume_types': types,
            }})['group']['id']
        self.addCleanup(self._remove_group, group)
        self._wait_group(group)
        self.lab.sql("update `groups` set host = 'node1@dmclone#dmclone' "
                     f"where id = '{group}'")
        return str(group)

    def _wait_group(self, group: str) -> None:
        self.wait('the group', lambda: self.lab.cinder(
            'GET', f'/groups/{group}')['group']['status'] == 'available')

    def _change_group(self, group: str, change: str) -> None:
        self.lab.cinder('PUT', f'/groups/{group}',
                        {'group': {change: self.subject}})
        self._wait_group(group)

    def _remove_group(self, group: str) -> None:
        self.lab.cinder('POST', f'/groups/{group}/action',
                        {'delete': {'delete-volumes': False}})
        self.wait('the group to go', lambda: not self.lab.sql(
            'select id from `groups` where deleted = 0'))

    def test_an_attachment_deleted_midway(self) -> None:
        if FAULTY_DRIVER not in self.node1.read('/etc/cinder/cinder.conf'):
            self.skipTest('the lab runs without fault points')
        attachment = self.lab.reserve(self.subject)
        self.freeze(self.node1, 'peers.Prepare:after')
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(self.connect, attachment)
            self.wait_frozen(self.node1)
            self.lab.detach_volume(attachment)
            self.thaw(self.node1)
            error = str(call.exception())
        self.assertIn(f'its attachment {attachment} was deleted', error)
        self.assert_usable()

    def test_secrets_are_in_no_log(self) -> None:
        moving = self.volume(self.node1)
        attachment = self.lab.reserve(self.subject)
        initiator = 'iqn.2026-01.lab.dmclone:glance1'
        info = self.connect(attachment, host='glance1', initiator=initiator
                            )['connection_info']
        at = self.attach_slowly(moving, self.node1, self.node2)
        secrets = self._secrets()
        self.assertIn(info['auth_password'], secrets)
        # The lender's and the borrower's are the same.
        self.assertGreaterEqual(len(secrets), 2)
        # Repairs, too, have something to log.
        self.node2.volume.kill()
        self.start_services(self.node2)
        self.release(at, self.node1)
        self.wait_complete(moving)
        self.detach(at)
        self.lab.detach_volume(attachment)
        texts = {str(path): path.read_text(errors='replace')
                 for path in logs.find(self.lab.directory)}
        texts |= {node.name: node.run('dmesg', check=False).stdout
                  for node in self.lab.nodes}
        self.assertIn('cinder-volume.log', ' '.join(texts))
        found = [name for name, text in texts.items()
                 if any(secret in text for secret in secrets)]
        self.assertEqual([], found)

    def _secrets(self) -> set[str]:
        return {secret for node in self.lab.nodes for secret in
                node.run(_SECRETS, check=False).stdout.split()}
