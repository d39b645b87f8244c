"""Who is told when a writer must stop."""

from __future__ import annotations

import uuid

from memwal_core.errors import FencedError, MemwalError
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.storage import open_store
from memwal_core.writer.claim.ownership import Ownership
from testkit.clock import ManualClock


def _fenced(by: int) -> FencedError:
    return FencedError("another writer owns the region", remedy="open it again", writer_epoch=by)


def test_first_error_ends_a_writer_and_is_told_once() -> None:
    claimed = RegionManifest(region_id=RegionId(uuid.UUID(int=7)), version=1, writer_epoch=1, current_generation=1)
    ownership = Ownership(ManifestStore(open_store("memory:///owned"), IdSource()), claimed, 0.0, 1.0, ManualClock())
    told: list[MemwalError] = []
    ownership.on_end(told.append)
    first, second = _fenced(2), _fenced(3)

    assert ownership.end(first) is first
    assert told == [first]
    assert ownership.end(second) is first
    assert (told, ownership.ended) == ([first], first)
