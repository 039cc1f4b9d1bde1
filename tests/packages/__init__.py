"""Tests the artefacts of `make dist`, each installed in an empty environment. `make test-packages` runs these tests.

The tests of the .deb and the .rpm need root and the Debian packages mmdebstrap, systemd-container and unzip, because
they boot a Debian system with systemd (module `machine`). The tests of the image need root, mmdebstrap and runc. They
run the steps of the Dockerfile (module `image`) and the containers (module `container`) with runc. The servers of the
clusters run outside of all these systems.
"""
