#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# phases.sh stack|unstack|clean LOCALRC: what the script of devstack of that
# name does about Cinder, in its order, with the files of $TOP_DIR: devstack, or
# what stands for it here.

MODE=$1
LOCALRC=$2
HERE=$(cd "$(dirname "$0")" && pwd)

# shellcheck source=/dev/null
source "$TOP_DIR/functions"
# shellcheck source=/dev/null
source "$LOCALRC"

# shellcheck disable=SC2034
FILES=$TOP_DIR/files

libraries() {
    # shellcheck source=tests/devstack/stand-in/lib/lvm
    source "$TOP_DIR/lib/lvm"
    # shellcheck source=tests/devstack/stand-in/lib/cinder
    source "$TOP_DIR/lib/cinder"
}

stack() {
    set -o errexit
    run_phase override_defaults
    libraries
    run_phase source
    # shellcheck source=tests/devstack/outside.sh
    source "$HERE/outside.sh"
    run_phase stack pre-install
    if is_service_enabled cinder; then
        setup_develop "$CINDER_DIR"
        configure_cinder
    fi
    run_phase stack install
    if is_service_enabled cinder; then
        (init_cinder)
    fi
    run_phase stack post-config
    if is_service_enabled cinder; then
        start_cinder
        create_volume_types
    fi
    run_phase stack extra
    run_phase stack test-config
}

unstack() {
    run_phase override_defaults
    libraries
    # shellcheck source=tests/devstack/outside.sh
    source "$HERE/outside.sh"
    load_plugin_settings
    run_phase unstack
    stop_nova
    if is_service_enabled cinder; then
        stop_cinder || true
        if [[ $UNSTACK_DIES ]]; then
            exit 1
        fi
        cleanup_cinder || true
    fi
}

clean() {
    libraries
    # shellcheck source=tests/devstack/outside.sh
    source "$HERE/outside.sh"
    bash "$0" unstack "$LOCALRC"
    load_plugin_settings
    run_phase clean
    cleanup_cinder || true
    sudo rm -rf "$CINDER_CONF_DIR" "$DATA_DIR"
}

# Not a script of devstack's: the files of an older package are there.
upgrade() {
    local file
    for file in /etc/udev/rules.d/*dmclone.rules \
            /etc/systemd/system/cinder-dmclone.service \
            /etc/modules-load.d/cinder-dmclone.conf \
            /etc/multipath/conf.d/cinder-dmclone.conf; do
        echo '# older' >>"$file"
    done
    stack
}

"$MODE"
