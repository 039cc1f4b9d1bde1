#!/bin/sh
# Runs after an installation and after an upgrade, when all files of the previous version are gone.
set -e

choose_python() {
    for version in 3.13 3.12 3.11; do
        # Some distributions offer minimal variants of Python without these modules.
        if "/usr/bin/python$version" -c 'import ssl, zoneinfo' 2> /dev/null; then
            ln -sfn "/usr/bin/python$version" /opt/syncsvc/bin/python3
            return
        fi
    done
    echo 'syncsvc: there is no complete Python 3.11, 3.12 or 3.13 in /usr/bin. Install one, then install syncsvc again.' >&2
    exit 1
}

systemd-sysusers syncsvc.conf
choose_python
/opt/syncsvc/bin/python3 -m compileall -q /opt/syncsvc/lib/python3

# A restarted process continues its sync where it was. The installation must not fail here: before systemd 254, try-restart
# fails if a unit is masked.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload ||
        echo 'syncsvc: systemctl daemon-reload failed, so systemd may use old units. Run it again.' >&2
    for unit in 'syncsvc.service' 'syncsvc@*.service' 'syncsvc-verifier.service'; do
        systemctl try-restart "$unit" ||
            echo "syncsvc: could not restart $unit; it may still run the old version. Restart it by hand." >&2
    done
fi
