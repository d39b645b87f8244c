"""Object ages on the simulation's clock instead of the machine's, and hints as a cache may have kept them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from memwal_core.clock import Clock
from memwal_core.format.paths import VERSION_HINT_NAME
from memwal_core.storage import ObjectInfo, ObjectStore
from memwal_core.storage.limits import MAX_OBJECT_BYTES
from testkit.faults.faulty_store import FaultyStore


class ClockedStore(FaultyStore):
    """A faulty store whose objects are as old as the manual clock says.

    Args:
        inner: The store that does the work.
        clock: The simulation's clock.

    Attributes:
        has_old_hints: Whether hints are answered as they were first read. Nobody may rely on a hint, so it may be old
            even where a store answers everything else as it is.
    """

    def __init__(self, inner: ObjectStore, clock: Clock) -> None:
        """Begin with what is there as brand new."""
        super().__init__(inner)
        self._clock = clock
        self._first_seen: dict[tuple[str, str | None], datetime] = {}
        self._first_hints: dict[str, bytes] = {}
        self.has_old_hints = False

    def notice(self) -> list[ObjectInfo]:
        """Date everything that pylance wrote since the last call, after every turn; return all objects."""
        now = self._clock.now()
        listed = list(self.inner.list_objects(""))
        for info in listed:
            self._first_seen.setdefault((info.path, info.etag), now)
        return listed

    def get(self, path: str, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Read an object; a hint maybe as it was."""
        data = super().get(path, max_bytes)
        if not path.endswith(f"/{VERSION_HINT_NAME}"):
            return data
        first = self._first_hints.setdefault(path, data)
        return first if self.has_old_hints else data

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object with its simulated time."""
        info = super().head(path)
        return None if info is None else self._dated(info)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Describe objects with their simulated times."""
        return (self._dated(info) for info in super().list_objects(prefix))

    def _dated(self, info: ObjectInfo) -> ObjectInfo:
        modified = self._first_seen.setdefault((info.path, info.etag), self._clock.now())
        return replace(info, modified=modified)
