# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions of devstack that need the network, a database or a service, and
# belong to nothing that is tested.

# setup_develop DIRECTORY
function setup_develop {
    echo "setup_develop $1" >>"$MACHINE/commands"
    mkdir -p "$CINDER_BIN_DIR"
    if [[ $1 == "$DEST/cinder-dmclone" ]]; then
        ln -sf "$HERE/command" "$CINDER_BIN_DIR/cinder-dmclone"
    fi
}

function start_cinder {
    local be
    if is_service_enabled c-vol; then
        touch "$MACHINE/service" "$MACHINE/servers"
        for be in ${CINDER_ENABLED_BACKENDS//,/ }; do
            if [[ $be == dmclone:* ]]; then
                touch "$MACHINE/devices/$VOLUME_GROUP_NAME-${be##*:}"
            fi
        done
    fi
}

function stop_nova {
    rm -f "$MACHINE/servers"
}

function stop_cinder {
    rm -f "$MACHINE/service"
}

function configure_tempest {
    TEMPEST_CONFIG=$DEST/tempest/etc/tempest.conf
    mkdir -p "$DEST/tempest/etc"
    iniset "$TEMPEST_CONFIG" volume-feature-enabled manage_snapshot True
}

function async_runfunc {
    :
}

function async_wait {
    :
}

function install_tempest_plugins {
    :
}

function is_keystone_enabled {
    :
}

function update_package_repo {
    :
}

function configure_keystone_authtoken_middleware {
    :
}

function configure_keystoneauth {
    :
}

function database_connection_url {
    echo mysql+pymysql://root@127.0.0.1/cinder
}

function iniset_rpc_backend {
    :
}

function setup_logging {
    :
}

function write_uwsgi_config {
    :
}

function remove_uwsgi_config {
    :
}

function stop_process {
    :
}

function init_cinder_service_user_conf {
    :
}
