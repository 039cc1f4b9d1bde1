"""Asks the members of a replica set how far their oplogs reach back."""

from __future__ import annotations

from dataclasses import dataclass

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError
from pymongo.read_preferences import ReadPreference

from verifier.cluster.connect import Client
from verifier.cluster.pinning import Address, Pin


@dataclass(frozen=True)
class Reach:
    """The members of a replica set whose oplogs reach back, or may reach back, to a requested time.

    `holding` are the addresses of the members whose oplog reaches back to that time. `unknown` are the addresses of the
    members whose oplog could not be read.
    """

    holding: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def none(self) -> bool:
        """Return whether every asked member answered, and no oplog reaches back to the requested time."""
        return not self.holding and not self.unknown


def reach(client: Client, time: Timestamp) -> Reach:
    """Ask the data-bearing members, not only the primary, whether their oplogs reach back to `time`.

    Hidden and delayed members are not asked, because the driver does not know them. Members whose oplog cannot be read
    are `unknown`; no errors of the driver are raised.
    """
    holding, unknown = [], []
    for address, member in client.topology_description.server_descriptions().items():
        if member.server_type_name == "RSArbiter":
            continue
        oldest = _oldest(client, address)
        if oldest is None:
            unknown.append(_shown(address))
        elif oldest <= time:
            holding.append(_shown(address))
    return Reach(tuple(sorted(holding)), tuple(sorted(unknown)))


def _oldest(client: Client, address: Address) -> Timestamp | None:
    """Return the time of the oldest oplog entry of the member at `address`; None if its oplog cannot be read."""
    find = {"find": "oplog.rs", "projection": {"ts": 1}, "limit": 1, "singleBatch": True}
    try:
        with Pin(address).held():
            reply = client.local.command(find, read_preference=ReadPreference.NEAREST)
    except PyMongoError:
        return None
    time: Timestamp = reply["cursor"]["firstBatch"][0]["ts"]
    return time


def _shown(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
