"""The maintenance record: one compare-and-swap, freezes that last, and what reading it costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memwal_core.coordination.freeze import (
    Choice,
    Contradiction,
    FreezeCause,
    FreezeEnd,
    FreezeStore,
    MaintenanceRecord,
    Memory,
)
from memwal_core.errors import CorruptionError, FrozenError
from memwal_core.format.paths import RECORD_DIRECTORY
from memwal_core.ids import IdSource
from memwal_core.rng import system_rng
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore
from tests.unit.coordination.freeze.test_comparison import MEMORY, REGION

AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(open_store(str(tmp_path)))


def record_in(store: FaultyStore) -> FreezeStore:
    return FreezeStore(store, IdSource(system_rng()), clock=ManualClock())


def test_a_table_without_a_record_is_not_frozen(store: FaultyStore) -> None:
    assert record_in(store).load() is None
    record_in(store).require_thawed()


def test_a_freeze_is_seen_by_every_process_and_says_its_cause(store: FaultyStore) -> None:
    other = record_in(store)
    other.require_thawed()
    record_in(store).add(FreezeCause.DUPLICATE_KEYS, {"keys": [1, 2]}, "merge", region_id=REGION)
    with pytest.raises(FrozenError, match="more than once") as caught:
        other.require_thawed()
    assert caught.value.exit_code == 8
    assert caught.value.facts["causes"] == ["duplicate-keys"]
    assert caught.value.facts["evidence"] == {"keys": [1, 2]}
    assert "memwal thaw" in caught.value.remedy


def test_the_same_freeze_keeps_its_first_evidence(store: FaultyStore) -> None:
    freezes = record_in(store)
    first = freezes.add(FreezeCause.DUPLICATE_KEYS, {"keys": [1]}, "merge")
    assert freezes.add(FreezeCause.DUPLICATE_KEYS, {"keys": [2]}, "quality") == first
    assert len(freezes.active()) == 1


def test_two_processes_that_freeze_and_learn_at_once_lose_nothing(store: FaultyStore) -> None:
    one, two = record_in(store), record_in(store)
    one.update(lambda record: replace(record, memory=MEMORY))
    two.load()
    one.add(FreezeCause.BY_HAND, {"reason": "x"}, "someone")
    two.freeze((Contradiction(FreezeCause.INDEX_GONE, {}), Contradiction(FreezeCause.CHECK_FAILED, {})), "snapshot")
    found = record_in(store).load()
    assert found is not None
    assert found.memory == MEMORY
    assert [each.cause for each in found.active] == ["by-hand", "index-gone", "check-failed"]


def test_a_thaw_ends_what_it_names_and_keeps_how(store: FaultyStore) -> None:
    freezes = record_in(store)
    freezes.add(FreezeCause.BY_HAND, {}, "someone")
    failed = freezes.add(FreezeCause.CHECK_FAILED, {}, "quality")
    end = FreezeEnd(Choice.ACCEPT, "someone", AT, "it was wrong")
    freezes.update(lambda record: record.thawed([failed], end))
    found = record_in(store).load()
    assert found is not None
    assert [each.cause for each in found.active] == [FreezeCause.BY_HAND]
    assert [each.ended for each in found.freezes if each.ended] == [end]


def test_reading_again_costs_one_request(store: FaultyStore) -> None:
    freezes = record_in(store)
    freezes.update(lambda _: MaintenanceRecord(Memory(addresses=("/a",))))
    before = len(store.calls)
    freezes.load()
    assert len(store.calls) - before == 1


def test_an_equal_record_is_not_written(store: FaultyStore) -> None:
    freezes = record_in(store)
    freezes.update(lambda _: MaintenanceRecord(MEMORY))
    freezes.update(lambda record: replace(record, memory=MEMORY))
    assert len([each for each in store.list_objects(RECORD_DIRECTORY) if each.path.endswith("0.json")]) == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"addresses": 1}', b'{"addresses": [], "table": {}}'])
def test_a_record_that_cannot_be_read_lets_no_job_act(store: FaultyStore, data: bytes) -> None:
    record_in(store).add(FreezeCause.BY_HAND, {}, "someone")
    path = next(each.path for each in store.list_objects(RECORD_DIRECTORY) if "hint" not in each.path)
    store.delete(path)
    store.put(path, data)
    with pytest.raises(CorruptionError, match="maintenance record"):
        record_in(store).require_thawed()
