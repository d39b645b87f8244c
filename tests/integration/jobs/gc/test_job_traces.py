"""Garbage that jobs leave of themselves: staged keys of a merge that died, and old ledger versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.coordination.job_key import JobKey
from memwal_core.format.paths import LEDGER_DIRECTORY, MERGE_STAGING_DIRECTORY, UNNAMED_STREAM
from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.records import BatchRecords
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import FoundT, GivenT
from memwal_core.jobs.sharing.place import Engine
from memwal_core.settings import GcSettings, MergeSettings, Settings
from memwal_core.table import Table
from testkit.faults.failpoints import SimulatedCrash
from testkit.pickling_executors import PicklingExecutors
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import collect, gc_admin, later, write_generations
from testkit.tables.people import make_people_table, people

ROWS = {1: "a", 2: "p2", 5: "a", 6: "a"}


class MortalExecutors(PicklingExecutors):
    """Executors that may die before searching."""

    def __init__(self, *, dies: bool) -> None:
        super().__init__()
        self.dies = dies

    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        if self.dies and stage == "merge: find what they supersede":
            raise SimulatedCrash("merge.written")
        return super().map(stage, function, shares)


@pytest.fixture
def uri(tmp_path) -> str:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [1, 5], [6], name="a")
    return made.uri


def merge(uri: str, *, dies: bool = False) -> JobOutcome:
    admin = Table.open(uri, settings=Settings(merge=MergeSettings(unit_bytes=1)))
    return admin.run(MergeRequest(engine=Engine.SPARK), executors=MortalExecutors(dies=dies)).outcome


def staged(uri: str) -> list[str]:
    return sorted(str(path.relative_to(uri)) for path in Path(uri, MERGE_STAGING_DIRECTORY).rglob("*.arrow"))


def of_kind(admin: Table, kind: Kind) -> list[Item]:
    return [item for item in admin.run(GcRequest()).plan.items if item.kind is kind]


@pytest.mark.req("GC-27", "MRG-27")
def test_staged_keys_of_a_merge_that_died_stay_while_young_and_go_when_old(uri):
    with pytest.raises(SimulatedCrash):
        merge(uri, dies=True)
    left = staged(uri)
    assert len(left) == 1

    young = gc_admin(uri, clock=later(60))
    (item,) = of_kind(young, Kind.STAGED_KEYS)
    assert (item.path, item.reason, item.action) == (left[0], Gate.YOUNG, None)
    assert Kind.STAGED_KEYS not in collect(young).done
    assert staged(uri) == left

    report = collect(gc_admin(uri))

    assert report.done[Kind.STAGED_KEYS].items == 1
    assert report.failures == ()
    assert {item.reason for item in report.plan.of_kind(Kind.STAGED_KEYS)} == {FreeingRule.ABANDONED}
    assert staged(uri) == []
    assert merge(uri) is JobOutcome.DONE
    assert lsm_view(BaseTable.open(uri)) == ROWS


def test_merge_that_ends_leaves_no_staged_keys(uri):
    assert merge(uri) is JobOutcome.DONE

    assert staged(uri) == []
    assert of_kind(gc_admin(uri), Kind.STAGED_KEYS) == []


def test_file_of_another_form_among_staged_keys_is_never_deleted(uri):
    path = Path(uri, MERGE_STAGING_DIRECTORY, "1" * 32, "notes.txt")
    path.parent.mkdir(parents=True)
    path.write_text("mine", encoding="utf-8")

    report = collect(gc_admin(uri))

    assert path.read_text(encoding="utf-8") == "mine"
    assert [item.path for item in report.plan.items if item.kind is Kind.UNKNOWN] == [str(path.relative_to(uri))]


@pytest.mark.req("GC-12")
def test_old_ledger_versions_are_pruned_and_every_run_is_remembered(uri):
    key, admin = JobKey("merge"), Table.open(uri)
    for number in range(5):
        with admin.opened.ledger.run(admin.opened.new_run(key, f"run-{number}")):
            pass
    before = admin.opened.ledger.history(key)
    assert len(before.runs) == 5
    versions = Path(uri, LEDGER_DIRECTORY, "merge", "table")

    young = gc_admin(uri, clock=later(60))
    assert {item.reason for item in of_kind(young, Kind.LEDGER_VERSION)} == {Gate.YOUNG, Gate.RETENTION}

    report = collect(gc_admin(uri, settings=GcSettings(grace_s=0)))

    assert report.done[Kind.LEDGER_VERSION].items == 8
    assert len([path for path in versions.iterdir() if path.name != "version_hint.json"]) == 2
    ledger = Table.open(uri).opened.ledger
    assert ledger.history(key) == before
    with ledger.run(admin.opened.new_run(key, "run-6")):
        pass
    assert len(ledger.history(key).runs) == 6
    of_merge = [item for item in of_kind(gc_admin(uri), Kind.LEDGER_VERSION) if "/merge/" in item.path]
    assert of_merge[0].reason is FreeingRule.SUPERSEDED


def test_records_of_a_write_without_a_name_go_when_old_and_those_of_named_batches_never(uri):
    table = BaseTable.open(uri)
    records = BatchRecords(table.store, table.clock)
    batches = [BatchId(UNNAMED_STREAM, "a" * 32), BatchId("nightly", "21"), BatchId.numbered("query", 3)]
    for batch in batches:
        records.begin(batch, {})
        records.finish(batch)
    records.begin(BatchId(UNNAMED_STREAM, "b" * 32), {"{}": RegionRows(5)})  # died in the middle

    assert {item.reason for item in of_kind(gc_admin(uri, clock=later(60)), Kind.BATCH_RECORD)} == {Gate.YOUNG}
    report = collect(gc_admin(uri))

    assert report.done[Kind.BATCH_RECORD].items == 2
    assert report.failures == ()
    assert [records.done(batch) is not None for batch in batches] == [False, True, True]
