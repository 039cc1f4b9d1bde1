"""Tests the artefacts of `make dist`, each installed in an empty environment. `make test-packages` runs these tests.

The tests of the .deb and the .rpm need root, because they boot a Debian system with systemd (`machine`), and Debian's
packages mmdebstrap, systemd-container and unzip. The tests of the image need root, mmdebstrap and runc, which runs the
steps of the Dockerfile (`image`) and the containers (`container`). The servers of the clusters run outside of all these
systems.
"""
