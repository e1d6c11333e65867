# SPDX-License-Identifier: Apache-2.0
# Sourced by the commands beside it.  run_module MODULE ARGUMENTS runs a
# module of this checkout with the system's Python, whatever the directory.
run_module() {
    local name root python=/usr/bin/python3
    name=tools/$(basename "$0")
    root=$(cd "$(dirname "$0")/.." && pwd)
    if [ ! -x "$python" ]; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            echo "$name: $python is missing" >&2
            exit 1
        fi
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends python3 >/dev/null
    fi
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "$name: $python is older than Python 3.11" >&2
        exit 1
    fi
    exec "$python" -c 'import runpy, sys
sys.path[0] = sys.argv.pop(1)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)' \
        "$root" "$@"
}
