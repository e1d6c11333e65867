# SPDX-License-Identifier: Apache-2.0
"""What the pages for deployment tools give to copy can be read by them."""

from __future__ import annotations

import configparser
import pathlib
import re
import shlex
import typing

import ddt
import jinja2
from oslo_config import cfg
import yaml

from cinder_dmclone import cli
from cinder_dmclone import opts
from tests.unit import base

PAGES = pathlib.Path(__file__).resolve().parents[2] / 'doc/source/install'
FILES = PAGES / 'files'
KOLLA = FILES / 'kolla-ansible'
YAML = sorted(path.relative_to(FILES) for path in FILES.rglob('*.yml'))
PLAYBOOKS = ('kolla-ansible/host.yml',
             'openstack-ansible/cinder-dmclone.yml')

# Those of Cinder that a backend's section has.
_CINDER = ('volume_driver', 'volume_backend_name', 'volume_group',
           'target_ip_address')
# The image's name, and blocks that are the operator's, in
# kolla/docker/cinder/cinder-*/Dockerfile.j2.
_PARENT = '''
{%- block cinder_volume_footer %}{% endblock -%}
{{- cinder_base_pip_packages_append | join(' ') -}}
'''
_COMMAND = re.compile(r'cinder-dmclone ((?:[a-z-]+ ?)+)')


def ansible() -> jinja2.Environment:
    """With what Ansible and Kolla-Ansible add to Jinja, as far as used."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        loader=jinja2.DictLoader({'parent': _PARENT}))
    environment.filters |= {
        'kolla_address': lambda network: f'address in {network}',
        'dirname': lambda path: str(pathlib.PurePath(path).parent)}
    environment.tests['search'] = lambda text, pattern, multiline: bool(
        re.search(pattern, text, re.MULTILINE if multiline else 0))
    return environment


def template(text: str) -> jinja2.Template:
    return ansible().from_string(text)


def conf(path: pathlib.Path) -> configparser.RawConfigParser:
    # In a group of an inventory a line is a key without a value, and a unit
    # may have a key twice.
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(template(path.read_text()).render())
    return parser


def texts(value: typing.Any) -> typing.Iterator[str]:
    """All texts in what a YAML file holds."""
    if isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


@ddt.ddt
class PagesTest(base.TestCase):

    def load(self, path: str | pathlib.Path) -> typing.Any:
        return yaml.safe_load((FILES / path).read_text())

    def assert_backend(self, section: typing.Mapping[str, str]) -> None:
        """Nothing of it is unknown, and the class is there."""
        known = {*_CINDER, *(opt.dest for opt in opts.all_opts)}
        self.assertEqual(set(), set(section) - known)
        self.assertEqual(set(), set(_CINDER) - set(section))
        module, _, name = section['volume_driver'].rpartition('.')
        found = __import__(module, fromlist=[name])
        self.assertTrue(hasattr(found, name))

    def test_every_file_is_on_a_page(self) -> None:
        shown = {name for page in PAGES.glob('*.rst') for name in re.findall(
            r'literalinclude:: files/(\S+)', page.read_text())}
        self.assertEqual({str(path.relative_to(FILES))
                          for path in FILES.rglob('*') if path.is_file()},
                         shown)

    @ddt.data(*YAML)
    def test_yaml(self, path: pathlib.Path) -> None:
        found = self.load(path)
        self.assertTrue(found)
        for text in texts(found):
            template(text)

    @ddt.data(*PLAYBOOKS)
    def test_playbook(self, path: str) -> None:
        play, = self.load(path)
        self.assertTrue(play['hosts'])
        handlers = {task['name'] for task in play.get('handlers', [])}
        for task in play['tasks']:
            module, = (key for key in task if '.' in key)
            self.assertRegex(module, r'^(ansible\.builtin|community\.general)'
                             r'\.\w+$')
            if 'notify' in task:
                self.assertIn(task['notify'], handlers)
            # In Ansible these are expressions.
            for key in ('when', 'changed_when'):
                ansible().compile_expression(task.get(key, 'true'))

    @ddt.data(*PLAYBOOKS)
    def test_a_play_knows_what_has_changed(self, path: str) -> None:
        play, = self.load(path)
        changed, = {task['changed_when'] for task in play['tasks']
                    if 'changed_when' in task}
        for said, expected in (
                ('unchanged /etc/a\nunchanged /etc/b', False),
                ('unchanged /etc/a\ninstalled /etc/b', True),
                ('changed /etc/a (what it was: /etc/.a.old)', True),
                ('removed /etc/b', True)):
            self.assertEqual(str(expected), template(
                '{{ %s }}' % changed).render(files={'stdout': said}))

    def test_commands_of_ours(self) -> None:
        """All that the files call exist, with these arguments."""
        calls = [call for path in FILES.rglob('*') if path.is_file()
                 for line in path.read_text().splitlines()
                 if not line.startswith('#')
                 for call in _COMMAND.findall(line)]
        self.assertEqual(4, len(calls), calls)
        for call in calls:
            cli._parser().parse_args(shlex.split(call))

    def test_kolla_image(self) -> None:
        text = template((KOLLA / 'template-overrides.j2').read_text()).render(
            parent_template='parent')
        self.assertEqual(
            ['RUN cinder-dmclone install-files --rootwrap-only',
             'cinder-dmclone'], text.split('\n')[1:])

    def test_kolla_backend(self) -> None:
        found = conf(KOLLA / 'cinder-volume.conf')
        self.assertEqual(['dmclone'], cfg.types.List()(
            found['DEFAULT']['enabled_backends']))
        backend = dict(found.items('dmclone'))
        backend.pop('enabled_backends')
        self.assertEqual('address in migration',
                         backend['target_ip_address'])
        self.assert_backend(backend)

    def test_kolla_inventory_and_boot(self) -> None:
        self.assertEqual(['compute'], list(
            conf(KOLLA / 'inventory')['cinder-volume:children']))
        boot = conf(KOLLA / 'boot.conf')
        self.assertEqual(['Unit', 'Service'], boot.sections())
        # An empty one takes away what the unit says.
        lines = [line.partition('=')[2] for line in (
            KOLLA / 'boot.conf').read_text().splitlines()
            if line.startswith('ExecStart=')]
        self.assertEqual('', lines[0])
        program, option, script = shlex.split(lines[1])
        self.assertEqual(('/bin/sh', '-c'), (program, option))
        self.assertIn('docker exec cinder_volume', script)
        # The host has nothing to run.
        self.assertEqual('', boot['Service']['ExecStop'])

    def test_kolla_volumes(self) -> None:
        values = self.load('kolla-ansible/globals.yml')
        for name, wanted in (
                ('cinder_volume_extra_volumes', 3),
                ('iscsid_extra_volumes', 1)):
            found = template(values[name]).render(
                cinder_extra_volumes=[], default_extra_volumes=[], **{
                    key: value for key, value in values.items()
                    if key.startswith('dmclone')})
            self.assertEqual(wanted, len(yaml.safe_load(found)))

    def test_osa_backend(self) -> None:
        values = self.load('openstack-ansible/cinder_volume.yml')
        self.assertEqual(['dmclone'], list(values['cinder_backends']))
        self.assert_backend(values['cinder_backends']['dmclone'])
        # What the role takes for Cinder's LVM driver (cinder_backend_lvm_inuse
        # of os_cinder): it would install tgtd.
        self.assertNotIn('lvm', str(values['cinder_backends']))

    def test_osa_hosts(self) -> None:
        values = self.load('openstack-ansible/openstack_user_config.yml')
        self.assertEqual(values['compute_hosts'], values['storage_hosts'])
        for host in values['compute_hosts'].values():
            self.assertIn('dmclone_address', host['host_vars'])
