#!/bin/sh
# Runs before an installation and before an upgrade. Refuses to install over a virtual environment that pip has filled:
# it contains folders where the package installs links, and Python would load its modules instead of the package's.
set -e

for folder in /opt/syncsvc/lib/python3.*; do
    if [ -d "$folder" ] && [ ! -L "$folder" ]; then
        echo "syncsvc: /opt/syncsvc belongs to another installation. Move it away, and the units in /etc/systemd/system" \
            "that use it; then install the package again. /etc/syncsvc can stay." >&2
        exit 1
    fi
done
