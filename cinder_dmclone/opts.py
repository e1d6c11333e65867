# SPDX-License-Identifier: Apache-2.0
"""Options in ``cinder.conf``: of a backend, and of the privileged helper."""

from __future__ import annotations

import copy

from cinder import objects
from cinder.volume import configuration
from oslo_config import cfg
from oslo_privsep import priv_context

from cinder_dmclone import privileged

# Cinder's driver modules name objects that exist only after this.
objects.register_all()

from cinder.volume.drivers import lvm  # noqa: E402

dmclone_opts = [
    cfg.StrOpt(
        'dmclone_metadata_volume_group',
        help='LVM volume group for the dm-clone metadata, a few MiB per '
             'volume while it hydrates. On a faster device than that of '
             'volume_group small durable writes to a volume that has just '
             'moved may be faster. It must not lose acknowledged writes when '
             'the power fails. Default: the same as volume_group.'),
    cfg.StrOpt(
        'dmclone_lvm_type', default='thick',
        choices=[
            ('thick', 'Linear: each has its room from the beginning.'),
            ('thin', 'Thin, in the pool dmclone_thin_pool: each takes of it '
                     'what is written. The pool can be full before they '
                     'are.')],
        help='The form of the logical volumes that are made on this node for '
             'the data of volumes. Nodes may differ: a volume that moves gets '
             'the form of its new node. What was made before keeps its own.'),
    cfg.StrOpt(
        'dmclone_thin_pool',
        help='Name of the thin pool in volume_group, if dmclone_lvm_type is '
             'thin. It is made by the operator, and has to zero new blocks; '
             '"cinder-dmclone check" says how. Default: the name of the '
             'volume group with "-pool" behind it.'),
    cfg.IntOpt(
        'dmclone_region_size_kib', default=4, min=4, max=1024,
        help='Size in KiB of the regions in which a volume is copied from '
             'another node; a power of two. A write of a part of a region '
             'that has not arrived yet waits for the rest of it. Large reads '
             'and writes are split into regions. Regions are larger where '
             'the volume would have too many, and at least 64 KiB in copies '
             'on the same node.'),
    cfg.IntOpt(
        'dmclone_hydration_threshold_mib', default=16, min=1, max=1024,
        help='How many MiB are under way from the lender at most while a '
             'volume hydrates.'),
    cfg.IntOpt(
        'dmclone_hydration_batch_mib', default=4, min=1, max=1024,
        help='How many MiB are copied by one request at most while a volume '
             'hydrates.'),
    cfg.IntOpt(
        'dmclone_hydration_floor_mib', default=50, min=0, max=100000,
        mutable=True,
        help='How many MiB a second of a volume are aimed at while its server '
             'does I/O; when it pauses it is more. A server that always has '
             'requests under way may get less, or nothing. The higher, the '
             'longer the server waits for some of its own I/O meanwhile. 0: '
             'what the kernel copies by itself, which may be nothing.'),
    cfg.IntOpt(
        'dmclone_hydration_ceiling_mib', default=0, min=0, max=100000,
        mutable=True,
        help='How many MiB a second all volumes of the backend that hydrate '
             'on this node take from the network together, at most. What '
             'servers read and write themselves is not counted. One region '
             'of each is under way at any time, which may be more. 0: no '
             'limit.'),
    cfg.IntOpt(
        'dmclone_max_copies', default=3, min=2,
        help='How many copies of one volume there may be on all nodes: the '
             'volume, and older copies that it hydrates from. Each takes the '
             'room of the whole volume and is read through all younger ones. '
             'A volume that has as many moves again when it has hydrated; '
             'until then it is refused elsewhere, but not on the node that it '
             'has just come from: a resize can be reverted. Nor is a volume '
             'reverted to a snapshot once more while reverts have left as '
             'many, itself among them.'),
    cfg.StrOpt(
        'dmclone_no_room', default='refuse',
        choices=[
            ('refuse', 'The attachment is refused with the reason.'),
            ('serve', 'The volume stays where it is and is served over '
                      'iSCSI until it is detached. Its server cannot be '
                      'live-migrated, unless the volume is multiattach.')],
        help='What happens to a volume that is attached to a server on a node '
             'that has no room for it, or while it is in a group of Cinder, '
             'which stays on its node. A server that is live-migrated '
             'there is refused in any case.'),
    cfg.BoolOpt(
        'dmclone_clone_across_nodes', default=True,
        help="Whether an image in Cinder's cache (image_volume_cache_enabled) "
             'serves all nodes: a volume of it is there at once, and hydrates '
             'from the node with the cached one. If not, each node downloads '
             'the image once for itself, and depends on no other. Set it to '
             'False where another backend of the cloud has such a cache, too: '
             "Cinder does not tell their volumes apart, and downloads what is "
             "in the other's each time."),
    cfg.BoolOpt(
        'dmclone_online_extend', default=False,
        help='Whether volumes may be extended while servers have them. A '
             'server is shown the new size at once only if the libvirt driver '
             'of its Nova extends local volumes, for which there is a patch; '
             'otherwise when it is stopped and started. If not set, Cinder '
             'refuses.'),
    cfg.PortOpt(
        'dmclone_metrics_port',
        help='TCP port at which this backend tells Prometheus how it is, '
             'without authentication. Each backend of a node needs one of its '
             'own. Default: nothing listens, and nothing is computed.'),
    cfg.HostAddressOpt(
        'dmclone_metrics_address',
        help='The address for dmclone_metrics_port. Default: the same as '
             'target_ip_address.'),
]

# The volume group is Cinder's own option; a second definition of it would
# clash with that of the LVM driver in the same process.
all_opts = [*dmclone_opts,
            *(opt for opt in lvm.volume_opts if opt.name == 'volume_group')]


def register(conf: cfg.ConfigOpts = cfg.CONF) -> None:
    """Register the options where every backend section inherits them."""
    conf.register_opts(all_opts, group=configuration.SHARED_CONF_GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """What ``oslo.config.opts`` offers to generators and validators.

    A backend's section inherits what is in ``[backend_defaults]``; a validator
    knows the sections of backends by that group.
    """
    return [(configuration.SHARED_CONF_GROUP, dmclone_opts),
            (privileged.SECTION, _privileged_opts())]


def _privileged_opts() -> list[cfg.Opt]:
    """oslo.privsep's own, with our defaults."""
    found = {opt.name: copy.deepcopy(opt) for opt in priv_context.OPTS}
    found['capabilities'].default = privileged.CAPABILITIES
    threads = found['thread_pool_size']
    threads.default, threads.sample_default = privileged.THREADS, None
    threads.help = ('The number of threads of the privileged helper. '
                    f'{privileged.ABROAD} of them at most wait for another '
                    'node.')
    return list(found.values())
