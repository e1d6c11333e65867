#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Volumes of cinder-dmclone on a host that runs cinder-volume. devstack sources
# this in each of its phases; its lib/cinder calls the three functions named
# *_cinder_backend_dmclone for each backend of the type "dmclone".

_XTRACE_DMCLONE=$(set +o | grep xtrace)
set +o xtrace

DMCLONE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DMCLONE_UNIT=cinder-dmclone.service

# dmclone_missing_modules - Load the kernel's modules; print those it has not
function dmclone_missing_modules {
    local module
    while read -r module; do
        sudo modprobe "$module" >&2 || echo "$module"
    done < <(grep -v '^#' \
        "$DMCLONE_DIR/cinder_dmclone/files/modules-load.conf")
}

# dmclone_check_kernel - Die at once if no volume could be moved here
function dmclone_check_kernel {
    local kernel missing
    kernel=$(uname -r)
    missing=$(dmclone_missing_modules)
    # shellcheck disable=SC2154  # GetDistro
    if [[ -n "$missing" && "$os_VENDOR" == Ubuntu ]]; then
        # Virtual machines have the other half of the modules only.
        install_package "linux-modules-extra-$kernel" || true
        missing=$(dmclone_missing_modules)
    fi
    if [[ -n "$missing" ]]; then
        die $LINENO "cinder-dmclone: kernel $kernel has no module" \
            "${missing//$'\n'/, }: boot one that has, for example Ubuntu's," \
            "or see doc/source/install/kernels.rst"
    fi
}

# dmclone_install - Install the package and what the system reads of it, after
# configure_cinder, which begins with an empty rootwrap.d
function dmclone_install {
    local drop_in=/etc/systemd/system/$DMCLONE_UNIT.d
    setup_develop "$DMCLONE_DIR"
    sudo install -d "$drop_in"
    printf '[Service]\nUser=%s\n' "$STACK_USER" |
        sudo tee "$drop_in/devstack.conf"
    sudo "$CINDER_BIN_DIR/cinder-dmclone" install-files
    sudo systemctl enable "$DMCLONE_UNIT"
}

# configure_cinder_backend_dmclone - Write the backend's section of cinder.conf
# configure_cinder_backend_dmclone $be_name
function configure_cinder_backend_dmclone {
    local be_name=$1
    iniset "$CINDER_CONF" "$be_name" volume_backend_name "$be_name"
    iniset "$CINDER_CONF" "$be_name" volume_driver \
        cinder_dmclone.driver.DMCloneVolumeDriver
    iniset "$CINDER_CONF" "$be_name" volume_group \
        "$VOLUME_GROUP_NAME-$be_name"
    iniset "$CINDER_CONF" "$be_name" target_ip_address "$DMCLONE_TARGET_IP"
    iniset "$CINDER_CONF" "$be_name" volume_clear "$CINDER_VOLUME_CLEAR"
    if [[ -n "$DMCLONE_METADATA_BACKING_SIZE" ]]; then
        iniset "$CINDER_CONF" "$be_name" dmclone_metadata_volume_group \
            "$VOLUME_GROUP_NAME-$be_name-metadata"
    fi
}

# init_cinder_backend_dmclone - Make empty volume groups
# init_cinder_backend_dmclone $be_name
function init_cinder_backend_dmclone {
    local group=$VOLUME_GROUP_NAME-$1
    init_lvm_volume_group "$group" "$VOLUME_BACKING_FILE_SIZE"
    if [[ -n "$DMCLONE_METADATA_BACKING_SIZE" ]]; then
        init_lvm_volume_group "$group-metadata" \
            "$DMCLONE_METADATA_BACKING_SIZE"
    fi
}

# cleanup_cinder_backend_dmclone - Remove volumes and volume groups; unstack.sh
# calls this when it has stopped servers and cinder-volume, which it has not in
# the plugin's phase "unstack"
# cleanup_cinder_backend_dmclone $be_name
function cleanup_cinder_backend_dmclone {
    local group=$VOLUME_GROUP_NAME-$1
    # lvremove fails while there are devices on the logical volumes.
    if [[ -x $CINDER_BIN_DIR/cinder-dmclone ]]; then
        sudo "$CINDER_BIN_DIR/cinder-dmclone" deactivate
    fi
    clean_lvm_volume_group "$group"
    if [[ -n "$DMCLONE_METADATA_BACKING_SIZE" ]]; then
        clean_lvm_volume_group "$group-metadata"
    fi
}

# dmclone_clean - Remove what is left, and what dmclone_install has put below
# /etc. clean.sh itself knows only those backends that local.conf names; it
# removes /etc/cinder, and with it the filter.
function dmclone_clean {
    local be folder
    local CINDER_ENABLED_BACKENDS=$CINDER_ENABLED_BACKENDS
    source "$DMCLONE_DIR/devstack/override-defaults"
    for be in ${CINDER_ENABLED_BACKENDS//,/ }; do
        if [[ ${be%%:*} == dmclone ]]; then
            cleanup_cinder_backend_dmclone "${be##*:}"
        fi
    done
    for folder in modules-load.d multipath/conf.d systemd/system \
        systemd/system/multi-user.target.wants udev/rules.d; do
        # Former versions begin with a dot.
        sudo rm -rf /etc/$folder/{,.}{,??-}cinder-dmclone.*
    done
    sudo systemctl daemon-reload
    sudo udevadm control --reload
}

# dmclone_configure_tempest - Leave out what the driver does not do
function dmclone_configure_tempest {
    local feature
    # Tests use the first backend, unless they ask for another.
    if [[ $CINDER_ENABLED_BACKENDS != dmclone:* ]]; then
        return
    fi
    for feature in extend_attached_volume manage_snapshot; do
        iniset "$TEMPEST_CONFIG" volume-feature-enabled $feature False
    done
    iniset "$TEMPEST_CONFIG" volume-feature-enabled manage_volume True
    iniset "$TEMPEST_CONFIG" volume manage_volume_ref source-name,unmanaged-%s
}

if is_service_enabled c-vol; then
    case "$1 $2" in
        "stack pre-install")
            dmclone_check_kernel
            ;;
        "stack install")
            echo_summary "Installing cinder-dmclone"
            dmclone_install
            ;;
        "unstack ")
            sudo systemctl disable "$DMCLONE_UNIT"
            ;;
        "clean ")
            dmclone_clean
            ;;
    esac
fi

if [[ "$1 $2" == "stack test-config" ]] && is_service_enabled tempest; then
    dmclone_configure_tempest
fi

$_XTRACE_DMCLONE
