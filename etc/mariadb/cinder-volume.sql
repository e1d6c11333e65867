-- What a cinder-volume with cinder-dmclone may do in the database of Cinder, as
-- a role of MariaDB. Run it as an administrator in that database, after
-- "cinder-manage db sync" and again after each upgrade of Cinder:
--
--   # mariadb cinder < cinder-volume.sql
--
-- Then give each compute node an account of its own with that role; the page
-- "Security" of the documentation tells how, and what this does not protect.

CREATE ROLE IF NOT EXISTS cinder_volume;

-- Volumes, and what belongs to one. A volume that is deleted, and most else, is
-- only marked.
GRANT SELECT, INSERT, UPDATE ON `volumes` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE ON `volume_metadata` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE ON `volume_admin_metadata` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE ON `volume_glance_metadata` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE ON `volume_attachment` TO cinder_volume;
GRANT SELECT, UPDATE ON `attachment_specs` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE ON `snapshots` TO cinder_volume;
GRANT SELECT, UPDATE ON `snapshot_metadata` TO cinder_volume;
-- One goes with its volume. It has secrets, which are not read.
GRANT SELECT (`id`, `volume_id`, `deleted`, `updated_at`), UPDATE (`deleted`, `deleted_at`, `updated_at`) ON `transfers` TO cinder_volume;

-- Groups and backups; the API and cinder-backup make them.
GRANT SELECT, UPDATE ON `groups` TO cinder_volume;
GRANT SELECT, UPDATE ON `group_snapshots` TO cinder_volume;
GRANT SELECT, UPDATE ON `group_volume_type_mapping` TO cinder_volume;
GRANT SELECT, UPDATE ON `backups` TO cinder_volume;

-- What the service itself is, and does.
GRANT SELECT, INSERT, UPDATE ON `services` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE, DELETE ON `workers` TO cinder_volume;
GRANT SELECT, INSERT ON `messages` TO cinder_volume;
GRANT SELECT, INSERT ON `driver_initiator_data` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE, DELETE ON `image_volume_cache_entries` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE ON `quota_usages` TO cinder_volume;
GRANT SELECT, INSERT, UPDATE ON `reservations` TO cinder_volume;

-- What administrators decide, and the API writes.
GRANT SELECT ON `backup_metadata` TO cinder_volume;
GRANT SELECT ON `cgsnapshots` TO cinder_volume;
GRANT SELECT ON `clusters` TO cinder_volume;
GRANT SELECT ON `consistencygroups` TO cinder_volume;
GRANT SELECT ON `default_volume_types` TO cinder_volume;
GRANT SELECT ON `encryption` TO cinder_volume;
GRANT SELECT ON `group_type_projects` TO cinder_volume;
GRANT SELECT ON `group_type_specs` TO cinder_volume;
GRANT SELECT ON `group_types` TO cinder_volume;
GRANT SELECT ON `quality_of_service_specs` TO cinder_volume;
GRANT SELECT ON `quota_classes` TO cinder_volume;
GRANT SELECT ON `quotas` TO cinder_volume;
GRANT SELECT ON `volume_type_extra_specs` TO cinder_volume;
GRANT SELECT ON `volume_type_projects` TO cinder_volume;
GRANT SELECT ON `volume_types` TO cinder_volume;
