"""Records of Spark's batch writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwal_core.format.paths import UNNAMED_STREAM, batch_claim_path, batch_directory, batch_share_path
from memwal_core.ids import IdSource
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.storage.protocol import ObjectInfo
from testkit.tables.garbage import base, policy, stored, table

WRITE = batch_directory(UNNAMED_STREAM, "a" * 32)


def planned(*objects: ObjectInfo) -> list[Item]:
    return list(plan_gc(replace(table(base(0)), unnamed_batches=objects), policy()).items)


def test_records_of_a_write_go_together_when_the_last_is_old() -> None:
    paths = [f"{WRITE}/begun.json", f"{WRITE}/done.json", batch_share_path(UNNAMED_STREAM, "a" * 32, "{}")]

    assert [item.reason for item in planned(*map(stored, paths))] == [FreeingRule.ABANDONED] * 3
    young = planned(*map(stored, paths[:2]), stored(paths[2], 60.0))
    assert [(item.kind, item.reason) for item in young] == [(Kind.BATCH_RECORD, Gate.YOUNG)] * 3


@pytest.mark.parametrize("name", ["notes.txt", "done.json.tmp", "shares/done.json", f"shares/{'A' * 64}.json"])
def test_object_of_another_form_is_shown_and_never_free(name: str) -> None:
    (item,) = planned(stored(f"{WRITE}/{name}"))

    assert (item.kind, item.action) == (Kind.UNKNOWN, None)


def test_notes_of_claims_stay() -> None:
    assert planned(stored(batch_claim_path(UNNAMED_STREAM, IdSource().region_id()))) == []
