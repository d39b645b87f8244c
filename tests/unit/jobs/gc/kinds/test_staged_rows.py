"""Rows that Spark batches staged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwal_core.format.paths import (
    ROWS_STAGING_DIRECTORY,
    staged_batch_directory,
    staged_intent_path,
    staged_rows_path,
)
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.storage.protocol import ObjectInfo
from testkit.tables.garbage import base, policy, stored, table

NUMBERED = staged_batch_directory("query", "7", 7)
NAMED = staged_batch_directory("nightly", "21", None)


def planned(*objects: ObjectInfo) -> list[Item]:
    return list(plan_gc(replace(table(base(0)), row_staging=objects), policy()).items)


@pytest.mark.parametrize("directory", [NUMBERED, NAMED])
def test_staged_rows_of_a_batch_go_together_when_the_last_is_old(directory):
    paths = [staged_rows_path(directory, "a" * 32), staged_intent_path(directory)]

    assert [item.reason for item in planned(*map(stored, paths))] == [FreeingRule.ABANDONED, FreeingRule.ABANDONED]
    young = planned(stored(paths[0]), stored(paths[1], 60.0))
    assert [(item.kind, item.reason) for item in young] == [(Kind.STAGED_ROWS, Gate.YOUNG)] * 2


@pytest.mark.parametrize("name", ["notes.txt", f"{'a' * 32}.arrow", f"deeper/{'a' * 32}.lance", f"{'A' * 32}.lance"])
def test_object_of_another_form_is_shown_and_never_free(name):
    (item,) = planned(stored(f"{NUMBERED}/{name}"))

    assert (item.kind, item.action, item.reason) == (Kind.UNKNOWN, None, Gate.UNKNOWN)


def test_object_outside_of_a_batch_is_shown_and_never_free():
    (item,) = planned(stored(f"{ROWS_STAGING_DIRECTORY}/{'a' * 32}.lance"))

    assert (item.kind, item.action) == (Kind.UNKNOWN, None)
