#!/bin/sh
# Runs after the files were removed. The configuration and the logs stay, except for `purge` (deb).
set -e

if [ "$1" = purge ]; then
    rm -rf /etc/syncsvc /var/log/syncsvc
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload ||
        echo 'syncsvc: systemctl daemon-reload failed, so systemd may use old units. Run it again.' >&2
fi
