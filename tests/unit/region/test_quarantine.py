"""Holds: durable, kept on doubt, ended by people for good."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import quarantine_path
from memwal_core.ids import RegionId
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.settings import StorageSettings
from memwal_core.storage import ObjectStore, open_store

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
NOW = datetime(2026, 6, 1, tzinfo=UTC)
HOLD = Quarantined(REGION, 2, ("key_not_null: 1 of 2 rows",), NOW.isoformat())


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "t"), settings=StorageSettings(fsync=False))


def test_hold_is_read_back_by_another_store_object(store: ObjectStore) -> None:
    assert QuarantineStore(store).add(HOLD)

    assert QuarantineStore(store).load() == (HOLD,)
    assert QuarantineStore(store).by_region() == {REGION: {2: HOLD}}


def test_second_hold_changes_nothing(store: ObjectStore) -> None:
    holds = QuarantineStore(store)
    holds.add(HOLD)

    assert not holds.add(Quarantined(REGION, 2, ("another",), NOW.isoformat()))
    assert holds.load() == (HOLD,)


def test_released_generation_is_not_held_again(store: ObjectStore) -> None:
    holds = QuarantineStore(store)
    holds.add(HOLD)

    assert holds.release(REGION, 2, NOW) == HOLD

    assert holds.load() == ()
    assert holds.released() == {(REGION, 2)}
    assert not holds.add(HOLD)
    assert holds.load() == ()


def test_release_of_what_is_not_held_is_refused(store: ObjectStore) -> None:
    with pytest.raises(InvalidRequestError, match="not in quarantine"):
        QuarantineStore(store).release(REGION, 2, NOW)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"reasons": 1}', b"\xff"])
def test_unreadable_record_still_holds(store: ObjectStore, content: bytes) -> None:
    store.put(quarantine_path(REGION, 3), content)

    [entry] = QuarantineStore(store).load()

    assert (entry.region_id, entry.generation) == (REGION, 3)
    assert "cannot be read" in entry.reasons[0]


def test_stray_objects_are_no_holds(store: ObjectStore) -> None:
    for name in ("not-a-region/1.json", f"{REGION}/one.json", f"{REGION}/1.tmp"):
        store.put(f"_mem_wal/_quality/quarantined/{name}", b"{}")

    assert QuarantineStore(store).load() == ()
