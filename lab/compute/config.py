# SPDX-License-Identifier: Apache-2.0
"""Configuration files of Nova, Placement and libvirt in the lab."""
from __future__ import annotations

import pathlib
from collections.abc import Mapping

from lab.config import KEY, TRANSPORT, Sections, merged, text, user
from lab.network import CONTROLLER
from lab.rest import KEYSTONE
from lab.services import GATEWAY_PORT, PASSWORD

# Where nova-compute keeps what belongs to a server.
INSTANCES = '/var/lib/nova/instances'
# What Nova asks of Cinder goes by the gateway.
CINDER = f'http://{CONTROLLER}:{GATEWAY_PORT}/v3'


def database(name: str) -> str:
    """The URL of one of the databases."""
    return f'mysql+pymysql://lab:{PASSWORD}@{CONTROLLER}/{name}'


def cinder() -> Sections:
    """What cinder.conf has more if there is a Nova."""
    return {'nova': user('cinder'),
            # From the gateway.
            'oslo_middleware': {'enable_proxy_headers_parsing': True}}


def placement() -> str:
    """placement.conf."""
    return text({
        'DEFAULT': {'use_stderr': True},
        'placement_database': {'connection': database('placement')},
        'keystone_authtoken': {
            'www_authenticate_uri': KEYSTONE, **user('placement')},
    })


def _common(state: str) -> Sections:
    nova = user('nova')
    return {
        'DEFAULT': {
            'transport_url': TRANSPORT,
            'state_path': state,
            'use_stderr': True,
            # Python in a node is several times slower than outside.
            'rpc_response_timeout': 180,
            'report_interval': 5,
            'service_down_time': 120,
            'default_log_levels':
                'nova.service=DEBUG,amqp=WARN,amqplib=WARN,sqlalchemy=WARN,'
                'oslo.messaging=INFO,oslo_messaging=INFO,iso8601=WARN,'
                'urllib3.connectionpool=WARN,keystonemiddleware=WARN,'
                'stevedore=WARN,oslo.service=INFO,oslo.privsep.daemon=INFO,'
                'neutronclient=ERROR',
        },
        'cinder': {'endpoint_template': CINDER, **nova},
        'keystone_authtoken': {'www_authenticate_uri': KEYSTONE, **nova},
        'neutron': nova,
        'placement': nova,
        'service_user': {'send_service_user_token': True, **nova},
        # Cinder has the same one for all volumes.
        'key_manager': {
            'backend': 'nova.keymgr.conf_key_mgr.ConfKeyManager',
            'fixed_key': KEY},
        'oslo_concurrency': {'lock_path': f'{state}/lock'},
    }


def controller(state: pathlib.Path) -> str:
    """nova.conf of the API, the conductor and the scheduler."""
    sections = _common(str(state))
    sections['DEFAULT'] |= {
        'host': 'controller', 'my_ip': CONTROLLER,
        # A new node becomes known at once.
        'periodic_fuzzy_delay': 0}
    return text(sections | {
        'api_database': {'connection': database('nova_api')},
        'database': {'connection': database('nova')},
        'conductor': {'workers': 1},
        'scheduler': {'workers': 1, 'discover_hosts_in_cells_interval': 2},
        'filter_scheduler': {
            'available_filters': 'cinder_dmclone.nova.filters.all_filters',
            'enabled_filters':
                'ComputeFilter,ComputeCapabilitiesFilter,'
                'ImagePropertiesFilter,ServerGroupAntiAffinityFilter,'
                'ServerGroupAffinityFilter,VolumeRoomFilter',
            'weight_classes':
                'nova.scheduler.weights.all_weighers,'
                'cinder_dmclone.nova.weights.VolumeLocalityWeigher',
        },
    })


def node(name: str, mgmt: str, data: str, helper: str,
         more: Mapping[str, Mapping[str, object]]) -> str:
    """nova.conf of a node.

    ``helper`` is the program of oslo.privsep; the options of ``more``, by
    section, are added.
    """
    sections = _common('/var/lib/nova')
    sections['DEFAULT'] |= {
        'host': name, 'my_ip': mgmt,
        'compute_driver': 'libvirt.LibvirtDriver',
        'instances_path': INSTANCES,
        # As images_type below: else the disk of a resized server is converted
        # to what it is not taken for (finish_migration).
        'use_cow_images': False,
        'reserved_host_memory_mb': 0,
        'cpu_allocation_ratio': 16,
        'heal_instance_info_cache_interval': -1,
        # In seconds.  It always takes that long: the thread for libvirt's
        # events never ends.
        'manager_shutdown_timeout': 5,
    }
    sections |= {
        'image_cache': {'manager_interval': -1},
        'libvirt': {
            'virt_type': 'qemu', 'cpu_mode': 'none', 'images_type': 'raw',
            'live_migration_scheme': 'tcp',
            'live_migration_inbound_addr': data,
            # In MiB; QEMU would take an eighth of the node's memory.
            'tb_cache_size': 32,
            'mem_stats_period_seconds': 0,
        },
        'vnc': {'enabled': False},
    }
    command: dict[str, object] = {
        'helper_command': f'{helper} --config-file /etc/nova/nova.conf'}
    sections |= {context: command for context in (
        'nova_sys_admin', 'privsep_osbrick',
        'vif_plug_linux_bridge_privileged', 'vif_plug_ovs_privileged')}
    return text(merged(sections, more))


def libvirtd(data: str, log: pathlib.Path) -> str:
    """libvirtd.conf of a node."""
    return (f'listen_tls = 0\nlisten_tcp = 1\nlisten_addr = "{data}"\n'
            'auth_tcp = "none"\nauth_unix_ro = "none"\n'
            'auth_unix_rw = "none"\n'
            # Two hosts of one uuid do not migrate anything.
            'host_uuid_source = "machine-id"\n'
            f'log_outputs = "3:file:{log}"\n')


def qemu() -> str:
    """qemu.conf of a node."""
    return ('user = "root"\ngroup = "root"\nsecurity_driver = "none"\n'
            'dynamic_ownership = 0\nremember_owner = 0\n'
            # There is no cgroup file system in a node.
            'cgroup_controllers = []\nnamespaces = []\n'
            # QEMU writes the console's log itself, without virtlogd.
            'stdio_handler = "file"\n'
            # With it libvirt asks for some 400 properties of the processor
            # whenever a server starts, which takes it ten seconds.
            'capability_filters = ["cpu-unavailable-features"]\n')
