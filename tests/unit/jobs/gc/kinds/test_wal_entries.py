"""Which WAL entries may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcRegionState
from memwal_core.settings import DAY_S, GcSettings, Settings, WalCollection, WriterSettings
from testkit.tables.garbage import NOW, OLD_S, base, directory, policy, region, table


def planned(state: GcRegionState, *, merged: int = 0, settings: GcSettings | None = None) -> dict[int, Item]:
    items = plan_gc(table(base(merged), state), policy(settings)).items
    return {item.number: item for item in items if item.kind is Kind.WAL_ENTRY}


def reasons(items: dict[int, Item]) -> dict[int, object]:
    return {number: item.reason for number, item in items.items()}


def entries(*numbers: int, age_s: float = OLD_S) -> dict[int, float]:
    return dict.fromkeys(numbers, age_s)


@pytest.mark.req("GC-10", "GC-11", "WRT-86")
def test_entries_above_the_replay_pointer_and_the_newest_stay():
    items = planned(region(current=2, replay=3, wal=entries(1, 2, 3, 4, 5)), merged=1)

    assert reasons(items) == {
        1: FreeingRule.UNREFERENCED,
        2: FreeingRule.UNREFERENCED,
        3: FreeingRule.UNREFERENCED,
        4: Gate.NOT_FLUSHED,
        5: Gate.NOT_FLUSHED,
    }


def test_newest_entry_stays_although_everything_is_flushed():
    items = planned(region(current=2, replay=3, wal=entries(1, 2, 3)), merged=1)

    assert reasons(items) == {1: FreeingRule.UNREFERENCED, 2: FreeingRule.UNREFERENCED, 3: Gate.FENCE}


@pytest.mark.req("GC-07", "GC-09", "D-07")
def test_entry_stays_while_a_flushed_memtable_consists_of_it():
    """Generation 2 consists of entry 1, whatever the order of numbers suggests."""
    directories = [directory(1, wal_ids=[3]), directory(2, wal_ids=[1, 4])]

    items = planned(region([1, 2], replay=4, wal=entries(1, 2, 3, 4, 5), directories=directories))

    assert reasons(items) == {
        1: Gate.REFERENCED,
        2: FreeingRule.UNREFERENCED,
        3: Gate.REFERENCED,
        4: Gate.REFERENCED,
        5: Gate.NOT_FLUSHED,
    }
    assert items[1].evidence == directory(2).name


@pytest.mark.req("GC-08")
def test_entry_shared_with_a_kept_directory_stays():
    orphan = replace(directory(1, wal_ids=[1, 2]), name="deadbeef_gen_1")
    kept = directory(1, wal_ids=[2])

    items = planned(region([1], replay=2, wal=entries(1, 2, 3), directories=[orphan, kept]))

    assert reasons(items) == {1: FreeingRule.UNREFERENCED, 2: Gate.REFERENCED, 3: Gate.NOT_FLUSHED}


def test_entry_of_a_directory_in_its_grace_period_stays():
    young = directory(1, wal_ids=[1])

    items = planned(
        replace(region([], current=2, replay=1, wal=entries(1, 2), directories=[young]), drained={young.name: NOW}),
        merged=1,
    )

    assert items[1].reason is Gate.REFERENCED


def test_directory_that_cannot_be_read_holds_every_entry():
    items = planned(region([1], replay=2, wal=entries(1, 2, 3), directories=[directory(1, wal_ids=None)]))

    assert reasons(items) == {1: Gate.UNCLEAR, 2: Gate.UNCLEAR, 3: Gate.NOT_FLUSHED}


def test_hole_above_the_replay_pointer_holds_every_entry():
    items = planned(region(current=2, replay=2, wal=entries(1, 2, 3, 5)), merged=1)

    assert items[1].reason is Gate.UNCLEAR
    assert items[1].evidence == "WAL entry 4 is missing although 5 exists"


@pytest.mark.parametrize(("age_s", "reason"), [(3 * DAY_S - 1, Gate.YOUNG), (3 * DAY_S, FreeingRule.UNREFERENCED)])
def test_young_entry_stays(age_s, reason):
    items = planned(region(current=2, replay=1, wal={1: age_s, 2: 0.0}), merged=1)

    assert items[1].reason is reason


def test_old_entry_stays_as_long_as_an_older_writer_may_not_know_that_it_is_flushed():
    items = planned(replace(region(current=2, replay=3, wal=entries(1, 2, 3, 4)), settled_wal_id=1), merged=1)

    assert reasons(items) == {1: FreeingRule.UNREFERENCED, 2: Gate.YOUNG, 3: Gate.YOUNG, 4: Gate.NOT_FLUSHED}


def test_slow_epoch_checks_lengthen_the_age():
    settings = Settings(
        writer=WriterSettings(epoch_check_interval_s=3600), gc=GcSettings(wal_min_age_s=DAY_S, wal_epoch_checks=48)
    )

    assert Policy.of(settings, NOW).wal_age_s == 48 * 3600


@pytest.mark.parametrize(
    ("collected", "suffix", "reason"),
    [
        (WalCollection.NONE, ".lance", Gate.SWITCHED_OFF),
        (WalCollection.OURS, ".lance", FreeingRule.UNREFERENCED),
        (WalCollection.OURS, ".arrow", Gate.SWITCHED_OFF),
        (WalCollection.ALL, ".arrow", FreeingRule.UNREFERENCED),
    ],
)
def test_a_setting_says_whose_entries_are_collected(collected, suffix, reason):
    chosen = replace(region(current=2, replay=1, wal=entries(1, 2)), wal_suffixes=frozenset({suffix}))
    items = planned(chosen, merged=1, settings=GcSettings(collect_wal=collected))

    assert reasons(items) == {1: reason, 2: Gate.NOT_FLUSHED}
