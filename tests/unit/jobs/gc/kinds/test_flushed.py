"""When a recorded flushed MemTable may go: the planner's truth tables."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from memwal_core.base_table import RetainedVersion
from memwal_core.jobs.gc.items import Action, FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.jobs.gc.state import GcState
from memwal_core.region import RegionStatus
from memwal_core.settings import DAY_S, GcSettings
from testkit.tables.garbage import NOW, REGION, base, directory, policy, region, table


def planned(state: GcState) -> dict[int, Item]:
    return {item.number: item for item in plan_gc(state, policy()).items if item.kind is Kind.FLUSHED_MEMTABLE}


def drained(state: GcState) -> list[int]:
    return [number for number, item in planned(state).items() if item.action is Action.DRAIN]


def retained(version: int, merged: int | None, **others) -> RetainedVersion:
    progress = {} if merged is None else {REGION: merged}
    return RetainedVersion(version, merged=progress, **others)


@pytest.mark.req("GC-02", "D-08")
@pytest.mark.parametrize(("merged", "caught_up"), list(itertools.product((4, 5, 6), (4, 5, 6))))
def test_generation_goes_only_if_merged_and_caught_up(merged, caught_up):
    state = table(
        base(merged, catchup={"vec": min(caught_up, merged)}, maintained=["vec"]), region([5, 6, 7], current=8)
    )

    assert (5 in drained(state)) == (merged >= 5 and caught_up >= 5)


@pytest.mark.req("GC-02")
def test_gate_names_what_holds_each_generation():
    items = planned(table(base(6, catchup={"vec": 5}), region([5, 6, 7])))

    assert [(item.number, item.reason) for item in items.values()] == [
        (5, FreeingRule.COVERED),
        (6, Gate.INDEX_BEHIND),
        (7, Gate.UNMERGED),
    ]
    assert items[6].evidence == "vec covers up to 5"


@pytest.mark.req("GC-03", "GC-04")
@pytest.mark.parametrize(
    "state",
    [
        base(3, maintained=["vec"]),
        base(3, index_names=["vec"]),
        base(3, maintained=["a", "vec"], catchup={"a": 3}),
        base(3, index_names=["a", "vec"], catchup={"a": 3}),
    ],
    ids=["maintained", "existing", "one of two maintained", "one of two existing"],
)
def test_index_without_catchup_entry_has_not_caught_up(state):
    """Decision 0005 overrides GC-03: absence of information frees nothing."""
    items = planned(table(state, region([1, 2, 3])))

    assert {item.reason for item in items.values()} == {Gate.INDEX_BEHIND}
    assert items[1].evidence == "vec has no entry"


@pytest.mark.req("GC-04")
def test_generation_waits_for_the_slowest_of_all_indexes():
    state = base(5, maintained=["a"], catchup={"a": 5, "b": 2, "c": 4}, index_names=["a", "c"])

    assert drained(table(state, region([1, 2, 3, 4, 5]))) == [1, 2]


@pytest.mark.req("GC-05")
def test_without_indexes_only_the_merge_counts():
    assert drained(table(base(2), region([1, 2, 3]))) == [1, 2]


@pytest.mark.req("GC-06")
def test_state_of_appendix_4_frees_the_first_three_generations():
    state = table(base(4, maintained=["ivf"], catchup={"ivf": 3}), region([1, 2, 3, 4, 5], current=6))

    items = planned(state)

    assert drained(state) == [1, 2, 3]
    assert (items[4].reason, items[5].reason) == (Gate.INDEX_BEHIND, Gate.UNMERGED)
    assert 6 not in items


@pytest.mark.req("GC-17", "D-08")
def test_generations_above_the_progress_of_a_retained_version_stay():
    old, new = retained(10, 3), retained(12, 5)

    both = table(base(5, retained=[old, new]), region([1, 2, 3, 4, 5]))
    newest = table(base(5, retained=[new]), region([4, 5]))

    assert drained(both) == [1, 2, 3]
    assert {planned(both)[number].reason for number in (4, 5)} == {Gate.RETAINED_VERSION}
    assert planned(both)[4].evidence == "version 10 had merged 3"
    assert drained(newest) == [4, 5]


@pytest.mark.req("GC-18")
def test_retained_version_without_entry_for_the_region_counts_as_merged_nothing():
    state = table(base(2, retained=[retained(4, None)]), region([1, 2]))

    assert drained(state) == []


@pytest.mark.req("GC-18")
def test_version_from_before_memwal_imposes_nothing():
    state = table(base(2, retained=[retained(1, None, enabled=False)]), region([1, 2]))

    assert drained(state) == [1, 2]


@pytest.mark.req("GC-19")
def test_tagged_version_holds_and_its_tag_is_named():
    state = table(base(2, retained=[retained(4, 1, tags=("audit",))]), region([1, 2]))

    assert drained(state) == [1]
    assert planned(state)[2].evidence == "version 4 (tagged audit) had merged 1"


@pytest.mark.req("GC-17")
def test_version_of_a_branch_holds_as_well():
    state = table(base(2, retained=[retained(3, 0, branch="trial"), retained(9, 2)]), region([1, 2]))

    assert drained(state) == []
    assert planned(state)[1].evidence == "version 3 of branch trial had merged 0"


def test_plan_reads_the_progress_of_each_retained_version_once_whatever_the_number_of_generations():
    """It read that of each version twice for each generation: a table with three days of both was planned for hours."""
    reads: list[object] = []

    class Counting(dict):  # type: ignore[type-arg]
        def get(self, key, default=None):
            reads.append(key)
            return super().get(key, default)

    count = 300
    retained = [RetainedVersion(number, merged=Counting({REGION: number})) for number in range(count)]
    state = table(base(count, retained=retained), region(range(1, count + 1)))

    plan = plan_gc(state, policy())

    kept = {item.number: item.reason for item in plan.items if item.kind is Kind.FLUSHED_MEMTABLE}
    assert kept == dict.fromkeys(range(1, count + 1), Gate.RETAINED_VERSION)
    assert len(reads) <= 3 * count


def test_empty_base_table_proves_nothing():
    items = planned(table(base(2, num_rows=0), region([1, 2])))

    assert {item.reason for item in items.values()} == {Gate.EMPTY_BASE}


@pytest.mark.req("GC-26")
def test_region_snapshot_decides_nothing():
    """The snapshot's bytes are garbage here: a planner that looked at them would fail."""
    state = base(1)
    with_snapshot = type(state.details)(
        num_regions=99, inline_snapshots=b"stale", merged_generations=state.details.merged_generations
    )

    assert drained(table(type(state)(12, 1, with_snapshot), region([1, 2]))) == [1]


@pytest.mark.parametrize("generation_in_name", [0, 2])
def test_directory_whose_name_is_not_that_of_its_generation_stays(generation_in_name):
    found = directory(1)
    odd = type(found)(found.name, generation_in_name, 1, 1, NOW)

    items = planned(table(base(1), region([1], directories=[odd])))

    assert items[1].reason is Gate.UNEXPECTED_NAME


@pytest.mark.req("GC-22")
def test_merged_generation_whose_directory_is_gone_is_still_drained():
    assert drained(table(base(1), region([1], directories=[]))) == [1]


def lately(age_s: float, merged: int = 3) -> RetainedVersion:
    return RetainedVersion(9, merged={REGION: merged}, modified=NOW - timedelta(seconds=age_s))


@pytest.mark.parametrize(
    ("merged_s", "flushed_s", "stays"),
    [
        (60, 120, True),
        (3 * DAY_S - 1, 3 * DAY_S, True),
        (3 * DAY_S, 3 * DAY_S + 60, False),
        (60, 6 * DAY_S - 1, True),
        (60, 6 * DAY_S, False),
    ],
)
def test_merged_generation_stays_for_the_scanner_of_an_open_native_writer(merged_s, flushed_s, stays):
    """S4: it reads the base table as of its opening, so the rows would vanish from its scans."""
    recorded = region([1, 2, 3], directories=[directory(number, age_s=flushed_s) for number in (1, 2, 3)])

    items = planned(table(base(3, retained=[lately(merged_s)]), recorded))

    assert {item.reason for item in items.values()} == {Gate.OPEN_WRITER if stays else FreeingRule.COVERED}


def test_merged_generation_of_a_region_that_only_we_can_write_goes_at_once():
    recorded = region([1], directories=[directory(1, age_s=120)])
    sealed = replace(recorded, manifest=replace(recorded.manifest, status=RegionStatus.SEALED))

    assert drained(table(base(1, retained=[lately(60, 1)]), sealed)) == [1]


def test_open_native_writers_are_not_waited_for_where_that_is_chosen():
    recorded = region([1], directories=[directory(1, age_s=120)])
    state = table(base(1, retained=[lately(60, 1)]), recorded)

    plan = plan_gc(state, policy(GcSettings(open_writer_s=0)))

    assert [item.action for item in plan.items if item.kind is Kind.FLUSHED_MEMTABLE] == [Action.DRAIN]
