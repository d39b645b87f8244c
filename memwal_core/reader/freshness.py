"""How new the rows of a read are: what a caller asks for, and what a result states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from memwal_core.errors import InvalidRequestError

FRESHNESS_KEY = b"memwal:freshness"
"""Schema metadata of every result: its ``Freshness`` as JSON."""


class Consistency(StrEnum):
    """Where a read looks for rows that are not in the base table yet.

    - ``snapshot`` trusts the region snapshot in the MemWAL index: one read of the table, without anything flushed
      since.
    - ``latest`` reads the region manifests: everything that is flushed.
    - ``durable`` also reads the WAL behind the last flush: everything that was acknowledged as durable.
    - ``in_process`` reads the MemTables of writers in this process instead of their WAL, including rows that are not
      durable yet. Regions written elsewhere are read as with ``durable``.
    """

    SNAPSHOT = "snapshot"
    LATEST = "latest"
    DURABLE = "durable"
    IN_PROCESS = "in_process"


def parse_consistency(value: str) -> Consistency:
    """Return the consistency of a name.

    Raises:
        InvalidRequestError: There is none of this name.
    """
    try:
        return Consistency(value)
    except ValueError as error:
        raise InvalidRequestError(
            "there is no such consistency",
            remedy="name a known one",
            consistency=value,
            known=list(map(str, Consistency)),
        ) from error


@dataclass(frozen=True, slots=True)
class Freshness:
    """What a result contains.

    Attributes:
        achieved: The consistency reached for all regions; weaker than ``asked`` if MemTables of other processes are out
            of reach.
        base_version: Table version from which rows and merge progress were taken.
        taken: Time, in UTC, up to which every write is contained, as far as ``achieved`` reaches; for ``snapshot`` the
            time of the region snapshot.
        frozen: Causes for which the table was frozen half a minute ago or since, and those that this read found itself,
            for which the next job will freeze it: nothing is merged until a person decides, and the rows may be wrong
            in the way that the causes say.
    """

    asked: Consistency
    achieved: Consistency
    base_version: int
    taken: datetime
    regions: int
    regions_in_memory: int = 0
    is_time_travel: bool = False
    frozen: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the values as JSON-able ones."""
        return {
            "asked": str(self.asked),
            "achieved": str(self.achieved),
            "base_version": self.base_version,
            "taken": self.taken.isoformat(),
            "regions": self.regions,
            "regions_in_memory": self.regions_in_memory,
            "is_time_travel": self.is_time_travel,
            "frozen": list(self.frozen),
        }

    def metadata(self) -> Mapping[bytes, bytes]:
        """Return the schema metadata that states this freshness."""
        return {FRESHNESS_KEY: json.dumps(self.to_dict(), sort_keys=True).encode()}
