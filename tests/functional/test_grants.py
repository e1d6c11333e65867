# SPDX-License-Identifier: Apache-2.0
"""What the account of a node may not do in the database.

That the role has all that a node needs every other test of a lab shows.
"""
from __future__ import annotations

from lab.network import CONTROLLER
from lab.processes import run
from lab.services import PASSWORD
from tests.functional import base
from tests.functional import environment

FORBIDDEN = (
    'DELETE FROM volumes',
    'DROP TABLE volumes',
    'ALTER TABLE volumes ADD x INT',
    'CREATE TABLE x (y INT)',
    'UPDATE quotas SET hard_limit = -1',
    "UPDATE volume_types SET name = 'x'",
    'DELETE FROM encryption',
    'SELECT crypt_hash FROM transfers',
    'DELETE FROM driver_initiator_data',
    'SELECT * FROM keystone.user',
    'SELECT * FROM mysql.user',
    "CREATE USER x IDENTIFIED BY 'y'",
    "GRANT ALL ON *.* TO node@'%'",
)


@environment.only_long
class RoleTest(base.FunctionalTest):
    """By the client of MariaDB, from where the control plane is."""

    def ask(self, statement: str) -> str:
        """What comes of a statement of the node's: errors, or rows."""
        done = run(*self.lab.network.argv(
            'mariadb', '--no-defaults', f'--host={CONTROLLER}',
            '--user=node', f'--password={PASSWORD}', 'cinder',
            '--skip-column-names', f'--execute={statement}'), check=False)
        return done.stderr or done.stdout

    def test_what_is_forbidden(self) -> None:
        # Otherwise all would be forbidden to whoever cannot even log in.
        self.assertEqual('2\n', self.ask(
            "SELECT COUNT(*) FROM services WHERE topic = 'cinder-volume' "
            'AND deleted = 0'))
        for statement in FORBIDDEN:
            self.assertRegex(self.ask(statement), 'denied', statement)
