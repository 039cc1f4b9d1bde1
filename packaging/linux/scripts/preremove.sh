#!/bin/sh
# Runs before the files are removed. The first argument is `remove` (deb) or 0 (rpm); in an upgrade, it is another one.
set -e

case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl stop 'syncsvc.service' 'syncsvc@*.service' 'syncsvc-verifier.service'
    fi
    # A container may contain systemd-sysusers without the rest of systemd.
    if command -v systemctl > /dev/null; then
        systemctl --quiet disable syncsvc.service syncsvc@.service syncsvc-verifier.service
    fi
    rm -f /opt/syncsvc/bin/python3
    ;;
esac
# Remove the compiled modules, which no package owns; postinstall.sh compiles those of the next version.
find /opt/syncsvc/lib -name __pycache__ -exec rm -rf {} +
