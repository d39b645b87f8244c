"""Old versions of manifests, leases and ledgers, and leftovers of died writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwal_core.base_table import RetainedVersion
from memwal_core.format.paths import table_manifest_path
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.jobs.gc.state import NumberedObject, Register
from memwal_core.settings import DAY_S, GcSettings
from testkit.tables.garbage import OLD_S, base, policy, region, stored, table, versions

FIVE = GcSettings(manifest_retention=5)
STAGED = "3f2b8c1e-0000-4000-8000-000000000000"


def manifests(ages_s: dict[int, float], settings: GcSettings = FIVE) -> dict[int, Item]:
    state = table(base(0), replace(region(), versions=versions(ages_s)))
    return {item.number: item for item in plan_gc(state, policy(settings)).items if item.kind is Kind.MANIFEST_VERSION}


@pytest.mark.req("GC-12", "GC-13")
def test_versions_below_the_retention_go_and_the_newest_stay():
    items = manifests(dict.fromkeys(range(1, 21), OLD_S))

    assert [number for number, item in items.items() if item.reason is FreeingRule.SUPERSEDED] == list(range(1, 15))
    assert {items[number].reason for number in range(15, 21)} == {Gate.RETENTION}


def test_version_superseded_lately_stays_and_so_do_all_above_it():
    ages = dict.fromkeys(range(1, 21), OLD_S) | {5: DAY_S - 1}

    items = manifests(ages)

    assert [number for number, item in items.items() if item.action] == [1, 2, 3]
    assert {items[number].reason for number in range(4, 15)} == {Gate.YOUNG}


def test_few_versions_all_stay():
    assert {item.reason for item in manifests({1: OLD_S, 2: OLD_S}).values()} == {Gate.RETENTION}


def test_lease_keeps_its_newest_versions():
    objects = tuple(NumberedObject(n, stored(f"_mem_wal/_leases/merge/table/{n}.json")) for n in range(1, 9))
    state = replace(table(base(0)), leases=(Register("_mem_wal/_leases/merge/table", ".json", objects),))

    items = [item for item in plan_gc(state, policy(FIVE)).items if item.kind is Kind.LEASE_VERSION]

    assert [item.number for item in items if item.action] == [1, 2]


@pytest.mark.req("GC-12")
@pytest.mark.parametrize(
    ("ages_s", "reasons"),
    [
        ([OLD_S] * 4, [FreeingRule.SUPERSEDED, FreeingRule.SUPERSEDED, Gate.RETENTION, Gate.RETENTION]),
        ([OLD_S, 60.0, 50.0, 40.0], [Gate.YOUNG, Gate.YOUNG, Gate.RETENTION, Gate.RETENTION]),
        ([OLD_S, OLD_S, 60.0, 50.0], [FreeingRule.SUPERSEDED, Gate.YOUNG, Gate.RETENTION, Gate.RETENTION]),
        ([OLD_S] * 2, [Gate.RETENTION, Gate.RETENTION]),
        ([OLD_S], [Gate.RETENTION]),
    ],
    ids=["old", "superseded lately", "the last one superseded lately", "two", "one"],
)
def test_ledger_version_goes_when_superseded_long_ago_and_the_two_newest_stay(ages_s, reasons):
    home = "_mem_wal/_ledger/merge/table"
    objects = tuple(NumberedObject(n, stored(f"{home}/{n}.json", age)) for n, age in enumerate(ages_s, start=1))
    state = replace(table(base(0)), ledgers=(Register(home, ".json", objects),))

    items = plan_gc(state, policy()).items

    assert {item.kind for item in items} == {Kind.LEDGER_VERSION}
    assert [item.reason for item in items] == reasons
    assert [item.action is not None for item in items] == [reason is FreeingRule.SUPERSEDED for reason in reasons]


@pytest.mark.parametrize(
    ("version", "age_s", "reason"),
    [
        (3, OLD_S, FreeingRule.ABANDONED),
        (3, 60.0, Gate.YOUNG),
        (4, OLD_S, Gate.MAY_BE_RECORDED),
    ],
    ids=["version exists", "young", "only copy of its version"],
)
def test_staged_manifest_goes_if_it_is_old_and_its_version_exists(version, age_s, reason):
    staged = NumberedObject(version, stored(f"{table_manifest_path(version)}-{STAGED}", age_s))
    state = replace(table(base(0, retained=[RetainedVersion(3)])), staged=(staged,))

    (item,) = plan_gc(state, policy()).items

    assert item.reason is reason


@pytest.mark.req("GC-27")
def test_unknown_file_is_shown_and_never_free():
    state = table(base(0), replace(region(), unknown=(stored("_mem_wal/x/notes.txt"),)))

    (item,) = plan_gc(state, policy()).items

    assert (item.kind, item.action, item.reason) == (Kind.UNKNOWN, None, Gate.UNKNOWN)


def test_temporary_file_goes_when_it_is_old():
    state = table(base(0), replace(region(), temporaries=(stored("a.tmp.1f"), stored("b.tmp.2f", 5.0))))

    assert [item.reason for item in plan_gc(state, policy()).items] == [FreeingRule.ABANDONED, Gate.YOUNG]
