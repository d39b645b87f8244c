"""What contradicts the memory of a table, and what does not."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memwal_core.coordination.freeze import (
    CAUSES,
    Choice,
    FreezeCause,
    FreezeScope,
    Memory,
    SeenRegion,
    SeenTable,
    Sighting,
    compare,
)
from memwal_core.coordination.freeze.comparison import FLUSHED
from memwal_core.ids import RegionId

REGION = RegionId(uuid.UUID("11111111-1111-4111-8111-111111111111"))
OTHER = RegionId(uuid.UUID("22222222-2222-4222-8222-222222222222"))
MADE = datetime(2026, 1, 1, tzinfo=UTC)
INDEX = uuid.UUID(int=1)

MEMORY = Memory(
    addresses=("/tables/a",),
    table=SeenTable(7, MADE, INDEX),
    progress={REGION: 3},
    regions={REGION: SeenRegion(9, "nine", 6, {4: "a_gen_4", 5: "b_gen_5"})},
)
SAME = Sighting(
    address="/tables/a",
    table=MEMORY.table,
    progress={REGION: 3},
    listed=(REGION,),
    regions=MEMORY.regions,
)
LATER = replace(
    SAME,
    table=SeenTable(9, MADE + timedelta(hours=1), uuid.UUID(int=2)),
    progress={REGION: 5, OTHER: 1},
    listed=(REGION, OTHER),
    regions={REGION: SeenRegion(12, "twelve", 7, {6: "c_gen_6"}), OTHER: SeenRegion(2, "two", 2, {1: "d_gen_1"})},
)


def causes(seen: Sighting, memory: Memory = MEMORY) -> list[FreezeCause]:
    return [each.cause for each in compare(memory, seen)]


UNREAD = replace(SAME, regions={REGION: replace(MEMORY.regions[REGION], digest="")})
"""Whoever has no bytes of a manifest knows no digest."""


@pytest.mark.parametrize("seen", [SAME, LATER, UNREAD, Sighting(), replace(LATER, table=None, progress={})])
def test_what_normal_work_leaves_is_no_contradiction(seen: Sighting) -> None:
    assert causes(seen) == []
    assert causes(seen, Memory()) == []


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (replace(SAME, address="/tables/b"), FreezeCause.ADDRESS_CHANGED),
        (replace(SAME, table=SeenTable(6, MADE, INDEX)), FreezeCause.TABLE_WENT_BACK),
        (replace(SAME, table=SeenTable(7, MADE + timedelta(seconds=1), INDEX)), FreezeCause.TABLE_WENT_BACK),
        (replace(LATER, rewritten=True), FreezeCause.TABLE_WENT_BACK),
        (replace(LATER, table=SeenTable(9, MADE, None), progress={}), FreezeCause.INDEX_GONE),
        (replace(LATER, interrupted_at=8), FreezeCause.INDEX_MADE_ANEW),
        (replace(LATER, progress={}, unproven=True), FreezeCause.INDEX_MADE_ANEW),
        (replace(LATER, progress={}), FreezeCause.PROGRESS_WENT_BACK),
        (replace(LATER, progress={REGION: 2}), FreezeCause.PROGRESS_WENT_BACK),
        (replace(LATER, progress={OTHER: 1}), FreezeCause.PROGRESS_WENT_BACK),
        (replace(LATER, progress={REGION: 7}), FreezeCause.PROGRESS_AHEAD),
        (replace(SAME, listed=()), FreezeCause.REGION_VANISHED),
        (replace(SAME, regions={REGION: SeenRegion(9, "other", 6)}), FreezeCause.REGION_BEGAN_AGAIN),
        (replace(SAME, regions={REGION: SeenRegion(2, "two", 1)}), FreezeCause.REGION_BEGAN_AGAIN),
        (replace(SAME, regions={REGION: SeenRegion(20, "x", 9, {5: "other_gen_5"})}), FreezeCause.REGION_BEGAN_AGAIN),
        (replace(SAME, regions={REGION: SeenRegion(20, "x", 9, {3: "again_gen_3"})}), FreezeCause.REGION_BEGAN_AGAIN),
        (replace(LATER, replaced=(REGION,)), FreezeCause.REGION_BEGAN_AGAIN),
        (replace(SAME, regions={REGION: SeenRegion(8, "eight", 5, {4: "a_gen_4"})}), FreezeCause.REGION_WENT_BACK),
    ],
)
def test_each_break_of_the_history_has_its_cause(seen: Sighting, cause: FreezeCause) -> None:
    assert causes(seen) == [cause]


def test_evidence_says_what_was_flushed_so_that_it_can_be_discarded() -> None:
    (went_back,) = compare(MEMORY, replace(LATER, progress={REGION: 2}))
    assert went_back.evidence[FLUSHED] == {str(REGION): 6}

    (unread,) = compare(MEMORY, replace(LATER, progress={REGION: 2}, regions={}))
    assert FLUSHED not in unread.evidence


def test_progress_that_went_on_proves_the_index_where_versions_are_gone() -> None:
    assert causes(replace(LATER, unproven=True)) == []
    assert causes(replace(LATER, unproven=True), replace(MEMORY, progress={})) == [FreezeCause.INDEX_MADE_ANEW]


def test_a_snapshot_proves_the_index_where_versions_are_gone_and_nothing_was_merged_before() -> None:
    """A run that died after it had published a snapshot, and versions removed later, froze the table."""
    published = replace(LATER, progress={}, unproven=True, published=True)
    assert causes(published, replace(MEMORY, progress={})) == []
    assert causes(replace(published, published=False), replace(MEMORY, progress={})) == [FreezeCause.INDEX_MADE_ANEW]
    assert causes(replace(published, interrupted_at=8), replace(MEMORY, progress={})) == [FreezeCause.INDEX_MADE_ANEW]
    assert causes(published) == [FreezeCause.INDEX_MADE_ANEW]


def test_a_region_that_was_never_seen_can_still_be_behind_its_progress() -> None:
    seen = Sighting(progress={REGION: 3}, regions={REGION: SeenRegion(1, "one", 2)})
    assert causes(seen, Memory()) == [FreezeCause.PROGRESS_AHEAD]


def test_a_region_that_came_to_progress_it_had_no_directory_for_began_again() -> None:
    """As on a clone: a job saw the progress, found no directory, and later took the new generations for merged."""
    memory = Memory(progress={REGION: 3}).learned_absent([REGION])
    seen = Sighting(progress={REGION: 3}, regions={REGION: SeenRegion(9, "nine", 6, {1: "a_gen_1"})})
    assert causes(seen, memory) == [FreezeCause.REGION_BEGAN_AGAIN]
    assert causes(seen, replace(memory, absent=frozenset())) == []
    assert causes(seen, memory.learned_regions(seen.regions)) == []
    assert MEMORY.learned_absent([REGION]) == MEMORY, "a region that was seen is known by its manifest"


def test_a_generation_that_a_repair_writes_anew_is_the_same_region() -> None:
    repaired = replace(SAME, regions={REGION: SeenRegion(10, "ten", 6, {4: "other_gen_4", 5: "b_gen_5"})})
    assert causes(repaired) == [FreezeCause.REGION_BEGAN_AGAIN]
    assert causes(repaired, MEMORY.without_generation(REGION, 4)) == []


def test_memory_learns_only_what_is_newer() -> None:
    assert LATER.table is not None
    learned = MEMORY.learned("/tables/a", LATER.table, LATER.progress).learned_regions(LATER.regions)
    assert learned.progress == {REGION: 5, OTHER: 1}
    assert learned.regions == LATER.regions
    assert learned.learned("/tables/a", MEMORY.table, MEMORY.progress).learned_regions(MEMORY.regions) == learned


def test_only_a_vanished_region_leaves_the_others_to_the_jobs() -> None:
    scopes = {cause: facts.scope for cause, facts in CAUSES.items()}
    assert [cause for cause, scope in scopes.items() if scope is FreezeScope.REGION] == [FreezeCause.REGION_VANISHED]


def test_every_cause_says_what_a_person_may_choose() -> None:
    assert set(CAUSES) == set(FreezeCause)
    assert all(facts.choices and set(facts.choices) <= set(Choice) for facts in CAUSES.values())
