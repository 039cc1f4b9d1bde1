#!/bin/sh
# Runs before an installation and before an upgrade. Refuses to install over a virtual environment that pip has filled: it
# has folders where the package has links, and its modules would be used instead of those of the package.
set -e

for folder in /opt/syncsvc/lib/python3.*; do
    if [ -d "$folder" ] && [ ! -L "$folder" ]; then
        echo "syncsvc: /opt/syncsvc belongs to another installation. Move it away, and the units in /etc/systemd/system" \
            "that use it; then install the package again. /etc/syncsvc can stay." >&2
        exit 1
    fi
done
