"""Converts the start options for the reads of the copy to the driver's read preference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymongo.read_preferences import make_read_preference, read_pref_mode_from_name

from verifier.cluster.pinning import ServerMode


def read_preference(mode: str, tags: Sequence[Mapping[str, str]]) -> ServerMode:
    """Return the driver's read preference with this mode, such as secondaryPreferred, and these tag sets.

    Raises the driver's ConfigurationError if the mode is primary and there are tag sets.
    """
    return make_read_preference(read_pref_mode_from_name(mode), [*tags] or None)
