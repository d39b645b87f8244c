"""The one change of a recorded generation, which only repairs make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.ids import IdSource
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest, record_flush, restore_generation
from memwal_core.region.invariants import transition_violations
from memwal_core.storage import open_store
from testkit.rng import seeded_rng
from testkit.tables.native_regions import native_region_id

REGION = native_region_id(1)
NEW = FlushedGeneration(2, "bbbbbbbb_gen_2", 10, 1)
STORED = RegionManifest(
    REGION,
    version=5,
    writer_epoch=3,
    replay_after_wal_id=9,
    wal_id_last_seen=9,
    current_generation=4,
    flushed_generations=(
        FlushedGeneration(2, "aaaaaaaa_gen_2", 8, 2, unknown=b"\x28\x01"),
        FlushedGeneration(3, "aaaaaaaa_gen_3"),
    ),
)


def rules(new: RegionManifest, *, restores: bool) -> set[str]:
    return {each.rule for each in transition_violations(replace(new, version=6), STORED, restores=restores)}


def test_new_directory_takes_the_place_of_the_old_and_keeps_foreign_fields() -> None:
    restored = restore_generation(STORED, NEW)
    assert restored is not None
    assert restored.flushed_generations[0] == replace(NEW, unknown=b"\x28\x01")
    assert restored.flushed_generations[1:] == STORED.flushed_generations[1:]
    assert restore_generation(restored, NEW) is None


def test_forgotten_generation_is_recorded_in_its_place() -> None:
    restored = restore_generation(replace(STORED, flushed_generations=STORED.flushed_generations[1:]), NEW)
    assert restored is not None
    assert [each.generation for each in restored.flushed_generations] == [2, 3]


def test_generation_that_is_not_flushed_yet_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not flushed yet"):
        restore_generation(STORED, FlushedGeneration(4, "bbbbbbbb_gen_4"))


def test_only_a_repair_may_alter_a_record() -> None:
    restored = restore_generation(STORED, NEW)
    assert restored is not None
    assert rules(restored, restores=True) == set()
    assert "records_stay" in rules(restored, restores=False)


@pytest.mark.parametrize(
    "change",
    [
        {"writer_epoch": 4},
        {"replay_after_wal_id": 10},
        {"wal_id_last_seen": 10},
        {"current_generation": 5},
        {"flushed_generations": STORED.flushed_generations[:1]},
        {"unknown": b"\x01"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_repair_changes_records_and_nothing_else(change: dict[str, object]) -> None:
    restored = restore_generation(STORED, NEW)
    assert restored is not None
    assert rules(replace(restored, **change), restores=True)


def test_store_writes_it_only_when_told_that_it_is_a_repair() -> None:
    manifests = ManifestStore(open_store("memory://restore"), IdSource(seeded_rng(1)))
    manifests.create(REGION)
    manifests.update(REGION, lambda stored: record_flush(stored, FlushedGeneration(1, "aaaaaaaa_gen_1"), 1, 1))
    new = FlushedGeneration(1, "bbbbbbbb_gen_1")
    with pytest.raises(InvalidRequestError, match="breaks a rule"):
        manifests.update(REGION, lambda stored: restore_generation(stored, new))
    restored = manifests.update(REGION, lambda stored: restore_generation(stored, new), restores=True)
    assert restored.flushed_generations == (new,)
