# SPDX-License-Identifier: Apache-2.0
"""The real Nova loads the filter and the weigher, and asks them."""

from __future__ import annotations

import logging
import pathlib
import re
import sys
import tempfile
import typing
import unittest
from unittest import mock
import uuid

import nova.conf
from nova import config
from nova import context
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as main_db
from nova.db.main import models as main_models
from nova import objects
from nova.scheduler import filters
from nova.scheduler import host_manager
from nova.scheduler import weights
from oslo_config import cfg

from cinder_dmclone.nova import api
from cinder_dmclone.nova import knowledge
from cinder_dmclone.nova import placements
from cinder_dmclone.nova import planning
from tests.scheduler import cloud

CONF = nova.conf.CONF
PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/admin/scheduling.rst'
VOLUME = str(uuid.uuid4())

objects.register_all()


def page_options() -> dict[str, str]:
    """What an operator types into [filter_scheduler] by the page."""
    text = PAGE.read_text().partition('[filter_scheduler]')[2]
    return dict(re.findall(r'^   (\w+) = (.*)$', text.partition('\n\n')[0],
                           re.MULTILINE))


def configure(found: cloud.Cloud, folder: str) -> None:
    """nova.conf of nova-scheduler."""
    keystone = '\n'.join((
        'auth_type = password', f'auth_url = {found.url}/identity/v3',
        'username = nova', 'password = x', 'project_name = service',
        'user_domain_id = default', 'project_domain_id = default'))
    options = '\n'.join(f'{key} = {value}'
                        for key, value in page_options().items())
    file = pathlib.Path(folder, 'nova.conf')
    file.write_text(
        '[DEFAULT]\ntransport_url = fake:/\n'
        f'[database]\nconnection = sqlite:///{folder}/main\n'
        f'[api_database]\nconnection = sqlite:///{folder}/api\n'
        f'[cinder]\n{keystone}\n[placement]\n{keystone}\n'
        f'[filter_scheduler]\n{options}\n')
    config.parse_args(['nova', '--config-file', str(file)])


class SchedulerTest(unittest.TestCase):
    """Nova's objects, filters and weighers are without types."""

    cloud: typing.ClassVar[cloud.Cloud]
    folder: typing.ClassVar[str]
    filters: typing.ClassVar[dict[str, typing.Any]]
    weighers: typing.ClassVar[dict[str, typing.Any]]
    filter_handler: typing.ClassVar[typing.Any]
    weight_handler: typing.ClassVar[typing.Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cloud = cloud.Cloud()
        cls.addClassCleanup(cls.cloud.shutdown)
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        configure(cls.cloud, cls.folder)
        main_models.BASE.metadata.create_all(main_db.get_engine())
        api_models.BASE.metadata.create_all(api_db.get_engine())
        handler = filters.HostFilterHandler()
        cls.filters = {one.__name__: one() for one in
                       handler.get_matching_classes(
                           CONF.filter_scheduler.available_filters)}
        cls.filter_handler = handler
        cls.weight_handler = weights.HostWeightHandler()
        cls.weighers = {one.__name__: one() for one in
                        cls.weight_handler.get_matching_classes(
                            CONF.filter_scheduler.weight_classes)}

    def setUp(self) -> None:
        super().setUp()
        logging.disable(logging.NOTSET)
        api.planner.cache_clear()
        self.cloud.asked.clear()
        self.cloud.allocations.clear()
        self.cloud.add_volume(VOLUME, 'node1')
        self.hosts = []
        for name in ('node1', 'node2', 'node3'):
            state = host_manager.HostState(name, name, None)
            state.uuid, state.aggregates = str(uuid.uuid4()), []
            self.hosts.append(state)

    def server(self, *disks: dict[str, typing.Any]) -> objects.RequestSpec:
        """A server that is asked for and not placed yet."""
        admin = context.get_admin_context()
        server = str(uuid.uuid4())
        instance = objects.Instance(admin, uuid=server, project_id='p')
        objects.BuildRequest(
            admin, instance_uuid=server, project_id='p', instance=instance,
            block_device_mappings=self._mappings(admin, disks, server),
            tags=objects.TagList(objects=[])).create()
        return objects.RequestSpec(admin, instance_uuid=server,
                                   scheduler_hints={})

    def _mappings(self, ctxt: typing.Any,
                  disks: typing.Sequence[dict[str, typing.Any]],
                  server: str) -> objects.BlockDeviceMappingList:
        return objects.BlockDeviceMappingList(ctxt, objects=[
            objects.BlockDeviceMapping(
                ctxt, instance_uuid=server,
                **{'source_type': 'volume', 'destination_type': 'volume',
                   'volume_id': None, 'volume_size': None,
                   'volume_type': None, 'no_device': False, **disk})
            for disk in disks])

    def admitted(self, spec: objects.RequestSpec) -> list[str]:
        return [host.host for host in
                self.filter_handler.get_filtered_objects(
                    [self.filters['VolumeRoomFilter']], self.hosts, spec)]

    def test_the_page_names_what_there_is(self) -> None:
        self.assertIn('VolumeLocalityWeigher', self.weighers)
        enabled = set(CONF.filter_scheduler.enabled_filters)
        self.assertLess(enabled, set(self.filters))
        default = {opt.name: opt.default for opt in
                   nova.conf.scheduler.filter_scheduler_opts}
        self.assertEqual(
            {*default['enabled_filters'], 'VolumeRoomFilter'}, enabled)

    def test_a_full_host_is_avoided(self) -> None:
        spec = self.server({'volume_id': VOLUME})
        self.assertEqual(['node1', 'node2'], self.admitted(spec))
        self.assertIn(f'/volumes/{VOLUME}', self.cloud.asked)

    def test_a_volume_that_stays_with_another_server(self) -> None:
        self.cloud.add_volume(VOLUME, 'node1', servers=[str(uuid.uuid4())])
        spec = self.server({'volume_id': VOLUME})
        self.assertEqual(['node1', 'node2', 'node3'], self.admitted(spec))

    def test_volumes_that_nova_compute_will_make(self) -> None:
        spec = self.server(
            {'source_type': 'image', 'volume_size': 4},
            {'source_type': 'blank', 'volume_size': 4,
             'volume_type': 'id-local'},
            {'source_type': 'blank', 'volume_size': 40,
             'volume_type': 'ceph'})
        self.assertEqual(['node1', 'node2', 'node3'], self.admitted(spec))
        spec = self.server({'source_type': 'image', 'volume_size': 11})
        self.assertEqual(['node1', 'node2'], self.admitted(spec))

    def test_cinder_is_not_asked_without_volumes(self) -> None:
        spec = self.server({'source_type': 'blank',
                            'destination_type': 'local'})
        self.assertEqual(['node1', 'node2', 'node3'], self.admitted(spec))
        self.assertEqual([], self.cloud.asked)

    def test_a_server_that_moves(self) -> None:
        """Its disks are in its cell then, and it has them."""
        admin, server = context.get_admin_context(), str(uuid.uuid4())
        self.cloud.add_volume(VOLUME, 'node1', servers=[server])
        cell = objects.CellMapping(
            admin, uuid=str(uuid.uuid4()), name='cell1',
            transport_url='fake:///',
            database_connection=f'sqlite:///{self.folder}/main')
        cell.create()
        objects.InstanceMapping(
            admin, instance_uuid=server, cell_mapping=cell, project_id='p',
            user_id='u').create()
        mapping, = self._mappings(admin, [{'volume_id': VOLUME}], server)
        mapping.create()
        spec = objects.RequestSpec(admin, instance_uuid=server,
                                   scheduler_hints={})
        self.assertEqual(['node1', 'node2'], self.admitted(spec))

    def test_a_server_that_is_nowhere(self) -> None:
        spec = objects.RequestSpec(instance_uuid=str(uuid.uuid4()),
                                   scheduler_hints={})
        self.assertEqual(['node1', 'node2', 'node3'], self.admitted(spec))
        self.assertEqual([], self.cloud.asked)

    def test_a_rebuild_asks_nobody(self) -> None:
        spec = self.server({'volume_id': VOLUME})
        spec.scheduler_hints = {'_nova_check_type': ['rebuild']}
        self.assertEqual(['node1', 'node2', 'node3'], self.admitted(spec))
        self.assertEqual([], self.cloud.asked)

    def test_what_was_placed_is_subtracted(self) -> None:
        """Placement says where it is, and Nova never does."""
        spec = self.server({'source_type': 'image', 'volume_size': 60})
        self.assertEqual(['node1', 'node2'], self.admitted(spec))
        self.cloud.allocations[spec.instance_uuid] = self.hosts[0].uuid
        spec = self.server({'source_type': 'image', 'volume_size': 60})
        self.assertEqual(['node2'], self.admitted(spec))

    def test_no_host(self) -> None:
        self.cloud.add_volume(VOLUME, 'node1', 1000)
        spec = self.server({'volume_id': VOLUME})
        del self.hosts[0]
        with self.assertLogs('cinder_dmclone.nova', 'WARNING') as logs:
            self.assertEqual([], self.admitted(spec))
        self.assertIn(f'volume {VOLUME} of 1000 GiB on node1@dmclone',
                      logs.output[0])

    def test_cinder_hangs(self) -> None:
        self.cloud.held.clear()
        known = knowledge.Knowledge(api.Cinder(), wait=0.1)
        planner = planning.Planner(
            known, placements.Placements(api.providers), api.disks)
        self.enterContext(mock.patch.object(api, 'planner', lambda: planner))
        self.addCleanup(self.landed, known)
        spec = self.server({'volume_id': VOLUME})
        with self.assertLogs('cinder_dmclone.nova', 'WARNING') as logs:
            self.assertEqual(['node1', 'node2', 'node3'],
                             self.admitted(spec))
            self.assertEqual(['node1', 'node2', 'node3'],
                             self.admitted(spec))
        self.assertIn('until Cinder can be asked', logs.output[0])
        self.assertEqual(1, len(logs.output))

    def landed(self, known: knowledge.Knowledge) -> None:
        """Let nothing of this test ask Cinder in the next one."""
        flight = known._flight
        self.cloud.held.set()
        if flight:
            flight.result(60)

    def best(self, spec: objects.RequestSpec) -> str:
        found = self.weight_handler.get_weighed_objects(
            [self.weighers[name] for name in
             ('RAMWeigher', 'VolumeLocalityWeigher')], self.hosts, spec)
        return str(found[0].obj.host)

    def test_the_host_that_has_the_volume_is_preferred(self) -> None:
        """Also if Nova's own weighers like another one."""
        for index in (0, 2):
            self.cloud.add_volume(VOLUME, self.hosts[index].host)
            for state in self.hosts:
                state.free_ram_mb = 1000
            self.hosts[1].free_ram_mb = 64000
            spec = self.server({'volume_id': VOLUME})
            self.assertEqual(self.hosts[index].host, self.best(spec))

    def test_an_aggregate_has_its_own_multiplier(self) -> None:
        weigher = self.weighers['VolumeLocalityWeigher']
        self.assertEqual(5.0, weigher.weight_multiplier(self.hosts[0]))
        self.hosts[0].aggregates = [objects.Aggregate(metadata={
            'dmclone_locality_weight_multiplier': '0.5'})]
        self.assertEqual(0.5, weigher.weight_multiplier(self.hosts[0]))

    def test_without_cinder(self) -> None:
        """Nothing of it, and nothing else of the driver, is loaded."""
        self.assertEqual([], [
            name for name in sys.modules
            if name == 'cinder' or name.startswith('cinder.')])
        self.assertEqual({'nova'}, {
            name.split('.')[1] for name in sys.modules
            if name.startswith('cinder_dmclone.')})

    def test_its_option_is_known(self) -> None:
        self.assertIsInstance(CONF.dmclone, cfg.ConfigOpts.GroupAttr)
        self.assertEqual(5.0, CONF.dmclone.locality_weight_multiplier)
