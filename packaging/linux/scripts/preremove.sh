#!/bin/sh
# Runs before the files are removed. The first argument is `remove` (deb) or 0 (rpm), and another one for an upgrade.
set -e

case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl stop 'syncsvc.service' 'syncsvc@*.service' 'syncsvc-verifier.service'
    fi
    # A container may have systemd-sysusers without the rest of systemd.
    if command -v systemctl > /dev/null; then
        systemctl --quiet disable syncsvc.service syncsvc@.service syncsvc-verifier.service
    fi
    rm -f /opt/syncsvc/bin/python3
    ;;
esac
# The next version is compiled again.
find /opt/syncsvc/lib -name __pycache__ -exec rm -rf {} +
