"""Keys that merge passes staged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwal_core.format.paths import MERGE_STAGING_DIRECTORY, merge_staging_directory, staged_keys_path
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.settings import DAY_S, GcSettings
from memwal_core.storage.protocol import ObjectInfo
from testkit.tables.garbage import OLD_S, base, policy, stored, table

ONE, OTHER = "1" * 32, "2" * 32
AGE_S = GcSettings().orphan_age_s


def staged(merge_pass: str, name: str, age_s: float = OLD_S) -> ObjectInfo:
    return stored(staged_keys_path(merge_staging_directory(merge_pass), name * 32), age_s)


def planned(*objects: ObjectInfo, damage: str = "") -> list[Item]:
    state = replace(table(replace(base(0), problem=damage)), merge_staging=objects)
    return list(plan_gc(state, policy()).items)


@pytest.mark.req("GC-27")
@pytest.mark.parametrize(
    ("age_s", "reason"),
    [(AGE_S + 1, FreeingRule.ABANDONED), (AGE_S, FreeingRule.ABANDONED), (AGE_S - 1, Gate.YOUNG), (-DAY_S, Gate.YOUNG)],
    ids=["old", "just old enough", "young", "the store's clock is ahead"],
)
def test_staged_keys_go_when_they_are_old(age_s, reason):
    (item,) = planned(staged(ONE, "a", age_s))

    assert (item.kind, item.reason) == (Kind.STAGED_KEYS, reason)
    assert (item.action is not None) == (reason is FreeingRule.ABANDONED)
    assert f"{age_s:.0f} s" in item.evidence


def test_pass_that_wrote_lately_keeps_its_old_keys_and_another_pass_does_not():
    items = planned(staged(ONE, "a"), staged(ONE, "b", 60.0), staged(OTHER, "a"))

    assert [item.reason for item in items] == [Gate.YOUNG, Gate.YOUNG, FreeingRule.ABANDONED]


@pytest.mark.req("GC-27")
@pytest.mark.parametrize(
    "name",
    [
        f"{ONE}/notes.txt",
        f"{ONE}/{OTHER}.arrow.tmp",
        f"{ONE}/{OTHER}.lance",
        f"{ONE}/{OTHER[:-1]}.arrow",
        f"{ONE}/{OTHER[:-1]}G.arrow",
        f"{ONE}/deeper/{OTHER}.arrow",
        f"{ONE[:-1]}/{OTHER}.arrow",
        f"{OTHER}.arrow",
    ],
)
def test_object_of_another_form_is_shown_and_never_free(name):
    (item,) = planned(stored(f"{MERGE_STAGING_DIRECTORY}/{name}"))

    assert (item.kind, item.action, item.reason) == (Kind.UNKNOWN, None, Gate.UNKNOWN)


def test_frozen_table_keeps_its_staged_keys():
    (item,) = planned(staged(ONE, "a"), damage="unreadable")

    assert (item.action, item.reason) == (None, Gate.FROZEN)
