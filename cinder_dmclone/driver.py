# SPDX-License-Identifier: Apache-2.0
"""Cinder's face: every method says what, the modules behind it how."""

from __future__ import annotations

import typing

from cinder import exception
from cinder.image import image_utils
from cinder import interface
from cinder.volume import driver
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.host import uevents
from cinder_dmclone import locks
from cinder_dmclone import names
from cinder_dmclone import opts
from cinder_dmclone import preflight
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile import reconciler
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import capacity
from cinder_dmclone.service import births
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from cinder_dmclone.service import groups
from cinder_dmclone.service import images
from cinder_dmclone.service import manage
from cinder_dmclone.service import migrate
from cinder_dmclone.service import reverts
from cinder_dmclone.service import snapshots
from cinder_dmclone.service import views
from cinder_dmclone.service import volumes
from cinder_dmclone import wiring
from cinder_dmclone.world import World

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

# Of a host in Cinder's tables, in characters.
_LONGEST_HOST = 255
# Without one it is a state of the volume's LV, shared with that and others.
_NO_LV_OF_ITS_OWN = 'a snapshot need not have a logical volume of its own'

opts.register()


@interface.volumedriver
class DMCloneVolumeDriver(driver.VolumeDriver):
    """Volumes local to the node that uses them, moved by dm-clone.

    Version history::

        1.0.0 - first version
    """

    VERSION = '1.0.0'
    CI_WIKI_NAME = 'cinder-dmclone'

    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(opts.all_opts)
        # Cinder 26 and 28 ask when they have made the driver, and never again
        # (``VolumeManager.__init__``); later ones go by what is reported.
        self.capabilities['clone_across_pools'] = (
            self.configuration.dmclone_clone_across_nodes)
        self._service: Service
        self._loop: reconciler.Reconciler
        self._world: World
        self._stats_source: capacity.Stats
        self._server: typing.Any = None
        self._metrics: typing.Any = None

    @classmethod
    def get_driver_options(cls) -> list[cfg.Opt]:
        return [*opts.all_opts, *cls._get_oslo_driver_opts(
            'volume_backend_name', 'target_ip_address', 'target_port',
            'target_prefix', 'volume_clear', 'volume_clear_size',
            'volume_clear_ionice', 'volume_dd_blocksize',
            'reserved_percentage', 'max_over_subscription_ratio',
            'filter_function', 'goodness_function')]

    # -- service ------------------------------------------------------------

    def make_world(self) -> World:
        """The ports; a test may put something between."""
        return wiring.make_world(self.configuration, self.host)

    def do_setup(self, context: typing.Any) -> None:
        self._world = self.make_world()
        settings = self._world.settings
        locks.Presence(settings.node).announce(settings.budget)
        self._loop = reconciler.Reconciler(self._world)
        self._service = Service(self._world, self._loop)
        self._stats_source = capacity.Stats(
            self._world, self.configuration, self._loop.attention,
            self._loop.enqueue)

    def check_for_setup_error(self) -> None:
        # It is where the driver was loaded from; elsewhere that takes long.
        from cinder.volume import manager
        preflight.check(self._world.host, manager.volume_backend_opts)
        activation.activate_volumes(self._world.host)
        preflight.check_pool(self._world.host)

    def set_initialized(self) -> None:
        """Begin to answer peers and to reconcile.

        Cinder calls this once, after the fork and when the driver is up
        (``VolumeManager.init_host``).
        """
        super().set_initialized()
        self._announce()
        # These wait for nobody; to be reached needs the message bus.
        self._loop.start()
        uevents.listen(self._loop.path_failed, self._loop.enqueue_all)
        self._answer_prometheus()
        self._server = endpoint.serve(self._world.settings.node, self._service)

    def _announce(self) -> None:
        """Say which initiator this node has, and who else has it."""
        node, peers = self._world.settings.node, self._world.peers
        initiator = self._world.host.initiator.name()
        peers.announce(node, initiator)
        others = peers.sharing(node, initiator)
        if others:
            LOG.error('%(node)s has the iSCSI initiator name %(initiator)s, '
                      'and so has %(others)s: nodes that export volumes take '
                      'the one for the other. Give each its own, in '
                      '/etc/iscsi/initiatorname.iscsi, and start iscsid and '
                      'cinder-volume anew.',
                      {'node': node, 'initiator': initiator,
                       'others': ', '.join(others)})

    def _answer_prometheus(self) -> None:
        config = self.configuration
        if not config.dmclone_metrics_port:
            return
        # Who does not want it does without its library.
        from cinder_dmclone.metrics import collector
        from cinder_dmclone.metrics import server
        count = collector.Count()
        self._world.moves.listen(count)
        self._metrics = server.start(
            self._world.settings.node,
            config.dmclone_metrics_address or config.target_ip_address,
            config.dmclone_metrics_port, collector.Collector(collector.Source(
                self._world.host, self._loop.attention, count)))

    def _update_volume_stats(self) -> None:
        self._stats = self._stats_source.get(
            self.VERSION, self.get_filter_function(),
            self.get_goodness_function())

    # -- volumes ------------------------------------------------------------

    def create_volume(self, volume: typing.Any) -> None:
        """Make a volume; its row says where, when this returns.

        Nothing is returned for the manager to save: it saves that once more
        when an image has arrived, and the volume may have been cut by then
        (``_create_from_image_cache_or_download`` in
        cinder/volume/flows/manager/create_volume.py).
        """
        volumes.create(self._service, volume.id)

    def delete_volume(self, volume: typing.Any) -> None:
        try:
            volumes.delete(self._service, volume.id)
        except exceptions.DeviceBusy as error:
            raise exception.VolumeIsBusy(volume_name=volume.name) from error

    def create_snapshot(self, snapshot: typing.Any) -> None:
        """Make a volume a snapshot; its row says where, when this returns.

        Nothing is returned for the manager to save: its save checks nothing.
        """
        snapshots.create(self._service, snapshot.volume_id, snapshot.id)

    def delete_snapshot(self, snapshot: typing.Any) -> None:
        """What needs the room learns of it when the row is gone."""
        snapshots.delete(self._service, snapshot.volume_id, snapshot.id)

    def create_volume_from_snapshot(self, volume: typing.Any,
                                    snapshot: typing.Any) -> None:
        """The commit has written all there is to write."""
        births.from_snapshot(self._service, volume.id, snapshot.id)

    def snapshot_revert_use_temp_snapshot(self) -> bool:
        """What the volume was stays until what it is then is complete."""
        return False

    def revert_to_snapshot(self, context: typing.Any, volume: typing.Any,
                           snapshot: typing.Any) -> None:
        """Make a volume what its latest snapshot is; nobody has it."""
        reverts.revert(self._service, volume.id, snapshot.id)

    def create_cloned_volume(self, volume: typing.Any,
                             src_vref: typing.Any) -> None:
        """The commit has written all there is to write."""
        births.clone(self._service, volume.id, src_vref.id)

    def create_group_from_src(
            self, context: typing.Any, group: typing.Any,
            volumes: list[typing.Any], group_snapshot: typing.Any = None,
            snapshots: list[typing.Any] | None = None,
            source_group: typing.Any = None,
            source_vols: list[typing.Any] | None = None) -> tuple[None, None]:
        """Make the volumes of a group; one that fails fails all.

        With NotImplementedError its manager would call the methods above, and
        then say of volumes that could not be made that they are available
        (cinder/volume/manager.py, create_group_from_src). It has the sources
        in the order of the volumes.
        """
        for volume, snapshot in zip(volumes, snapshots or ()):
            births.from_snapshot(self._service, volume.id, snapshot.id)
        for volume, source in zip(volumes, source_vols or ()):
            births.clone(self._service, volume.id, source.id)
        return None, None

    def delete_group(self, context: typing.Any, group: typing.Any,
                     volumes: list[typing.Any]
                     ) -> tuple[dict[str, str], list[dict[str, str]]]:
        """See that nobody uses a group's volumes; one that fails fails all.

        With NotImplementedError its manager would delete the row also of one
        that is in use (``_delete_group_generic`` in cinder/volume/manager.py).
        """
        found = groups.delete(self._service, [each.id for each in volumes])
        return ({'status': 'error' if groups.left(found) else group.status},
                [{'id': each, 'status': status}
                 for each, status in found.items()])

    def extend_volume(self, volume: typing.Any, new_size: int) -> None:
        volumes.extend(self._service, volume.id, new_size)

    def migrate_volume(self, context: typing.Any, volume: typing.Any,
                       host: dict[str, typing.Any]) -> tuple[bool, None]:
        """Move an unattached volume to a peer by the same protocol.

        The commit has written all there is to write. Nothing is returned for
        the manager to save: its save checks nothing, and might put back what
        the node there has changed since.
        """
        return migrate.migrate(self._service, volume.id, host['host']), None

    def retype(self, context: typing.Any, volume: typing.Any,
               new_type: typing.Any, diff: typing.Any, host: typing.Any
               ) -> tuple[bool, dict[str, typing.Any]]:
        """Nothing is done: a type has nothing that LVs would differ in.

        Cinder asks if the new type admits this node, and does not if the
        encryption differs (``VolumeManager.retype``). What a QoS limits,
        Nova limits.
        """
        return True, {'host': migrate.settled_host(self._service, volume.id)}

    def copy_image_to_volume(self, context: typing.Any, volume: typing.Any,
                             image_service: typing.Any, image_id: str,
                             disable_sparse: bool = False) -> None:
        with images.local_path(self._service, volume.id) as path:
            image_utils.fetch_to_raw(
                context, image_service, image_id, path,
                self.configuration.volume_dd_blocksize, size=volume.size,
                disable_sparse=disable_sparse)

    def copy_volume_to_image(self, context: typing.Any, volume: typing.Any,
                             image_service: typing.Any,
                             image_meta: dict[str, typing.Any]) -> None:
        with images.readable(self._service, volume.id) as path:
            volume_utils.upload_volume(context, image_service, image_meta,
                                       path, volume)

    # -- logical volumes that exist -----------------------------------------

    def manage_existing_get_size(self, volume: typing.Any,
                                 existing_ref: typing.Any) -> int:
        return manage.size_of(self._service, existing_ref)

    def manage_existing(self, volume: typing.Any,
                        existing_ref: typing.Any) -> dict[str, typing.Any]:
        return {'provider_id': manage.manage(self._service, volume.id,
                                             existing_ref)}

    def get_manageable_volumes(
            self, cinder_volumes: typing.Any, marker: typing.Any,
            limit: int, offset: int, sort_keys: list[str],
            sort_dirs: list[str]) -> list[dict[str, typing.Any]]:
        return volume_utils.paginate_entries_list(
            manage.manageable(self._service), marker, limit, offset,
            sort_keys, sort_dirs)

    def unmanage(self, volume: typing.Any) -> None:
        """A refusal leaves the volume ``available``, with its reason logged.

        With any other error Cinder would leave it ``error_unmanaging``.
        """
        try:
            manage.unmanage(self._service, volume.id)
        except (exceptions.CannotUnmanage, exceptions.DeviceBusy,
                exceptions.VolumeLocked) as error:
            LOG.error('Volume %(volume)s was not unmanaged: %(error)s',
                      {'volume': volume.id, 'error': error.msg})
            raise exception.VolumeIsBusy(volume_name=volume.name) from error

    def manage_existing_snapshot_get_size(self, snapshot: typing.Any,
                                          existing_ref: typing.Any) -> int:
        raise exception.ManageExistingInvalidReference(
            existing_ref=existing_ref, reason=_NO_LV_OF_ITS_OWN)

    def get_manageable_snapshots(
            self, cinder_snapshots: typing.Any, marker: typing.Any,
            limit: int, offset: int, sort_keys: list[str],
            sort_dirs: list[str]) -> list[dict[str, typing.Any]]:
        return []

    def unmanage_snapshot(self, snapshot: typing.Any) -> None:
        """Refused as ``unmanage`` refuses."""
        LOG.error('Snapshot %(snapshot)s was not unmanaged: %(reason)s.',
                  {'snapshot': snapshot.id, 'reason': _NO_LV_OF_ITS_OWN})
        raise exception.SnapshotIsBusy(snapshot_name=snapshot.name)

    # -- connections --------------------------------------------------------

    def validate_connector(self, connector: dict[str, typing.Any]) -> None:
        """Refuse a connector that says neither where nor who it is.

        Anybody who may attach volumes can send one.
        """
        host, initiator = connector.get('host'), connector.get('initiator')
        if not host and not initiator:
            raise exception.InvalidConnectorException(
                missing='host or initiator')
        # It is quoted in the log.
        if host and not (isinstance(host, str) and host.isprintable()
                         and len(host) <= _LONGEST_HOST):
            raise exception.InvalidConnectorException(
                missing='host as a text')
        if initiator and not names.is_initiator(initiator):
            raise exception.InvalidConnectorException(
                missing='initiator as an iSCSI name (iqn.*, eui.* or naa.*)')

    def accept_transfer(self, context: typing.Any, volume: typing.Any,
                        new_user: str, new_project: str) -> None:
        connections.give_away(self._service, volume.id)

    def create_export(self, context: typing.Any, volume: typing.Any,
                      connector: dict[str, typing.Any]) -> None:
        """Exports are made when a connection is."""

    def ensure_export(self, context: typing.Any, volume: typing.Any) -> None:
        """The reconciler restores what a connection needs."""

    def remove_export(self, context: typing.Any, volume: typing.Any) -> None:
        """Exports end with their last connection."""

    def initialize_connection(self, volume: typing.Any,
                              connector: dict[str, typing.Any]
                              ) -> dict[str, typing.Any]:
        return connections.connect(self._service, volume.id, connector)

    def terminate_connection(self, volume: typing.Any,
                             connector: dict[str, typing.Any] | None,
                             force: bool = False) -> bool:
        return connections.disconnect(self._service, volume.id, connector)

    # -- backups ------------------------------------------------------------

    def backup_use_temp_snapshot(self) -> bool:
        """A volume in use is backed up by a snapshot: nothing is copied."""
        return True

    def create_export_snapshot(self, context: typing.Any,
                               snapshot: typing.Any,
                               connector: dict[str, typing.Any]) -> None:
        """Exports are made when a connection is."""

    def initialize_connection_snapshot(
            self, snapshot: typing.Any, connector: dict[str, typing.Any],
            **kwargs: typing.Any) -> dict[str, typing.Any]:
        return views.connect(self._service, snapshot.id, connector)

    def terminate_connection_snapshot(
            self, snapshot: typing.Any, connector: dict[str, typing.Any],
            **kwargs: typing.Any) -> None:
        views.disconnect(self._service, snapshot.id, connector)

    def remove_export_snapshot(self, context: typing.Any,
                               snapshot: typing.Any) -> None:
        """Exports end with their connection."""
