"""Readers notice before any job that a table's history changed: they refuse where rows hide, else warn (S2, S3).

No read of a table that goes on where it was seen asks the store for more than before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import Choice
from memwal_core.errors import DamagedError, FrozenError, InvalidRequestError
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.run import Decision
from memwal_core.reader.freshness import FRESHNESS_KEY
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.spark.types import FRESHNESS_FIELD
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.faults.damage import Vandal
from testkit.faults.faulty_store import FaultyStore
from testkit.spark_source import LoadedFrame
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import PRIMARY_KEY_METADATA
from testkit.tables.readable import keys_of

REGION = native_region_id(1)
NOTES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("text", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)
ALL_IDS = range(30)


def notes(*ids: int) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(np.float32(ids), 2)), 2)
    return pa.table({"id": list(ids), "text": ["word"] * len(ids), "vec": vectors}, schema=NOTES)


def write(uri: str, *ids: int) -> None:
    """Flush one generation."""
    write_native_generations(uri, REGION, [[Put(notes(*ids))]])


def merge(uri: str) -> JobOutcome:
    outcome: JobOutcome = Table.open(uri).run(MergeRequest()).outcome
    return outcome


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Make a table of which one generation is merged, after rows that were there from the beginning."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(notes(0), uri)
    lance.dataset(uri).create_scalar_index("text", "INVERTED")
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    write(uri, 1)
    assert merge(uri) is JobOutcome.DONE
    return uri


def clone_of(uri: str) -> str:
    clone = f"{uri}-clone.lance"
    lance.dataset(uri).shallow_clone(clone, lance.dataset(uri).version)
    return clone


def by_spark(uri: str) -> pa.Table:
    frame = LoadedFrame(uri=uri, consistency="latest")
    (stated,) = {field.metadata[FRESHNESS_FIELD] for field in frame.schema.fields if FRESHNESS_FIELD in field.metadata}
    return frame.rows().replace_schema_metadata({FRESHNESS_KEY: stated})


READS: Mapping[str, Callable[[str], pa.Table]] = {
    "scan": lambda uri: Table.open(uri).to_arrow(),
    "scan of everything durable": lambda uri: Table.open(uri).to_arrow(consistency="durable"),
    "lookup": lambda uri: Table.open(uri).lookup(keys_of(*ALL_IDS)),
    "vector search": lambda uri: Table.open(uri).vector_search(VectorQuery("vec", [0.0, 0.0], k=30)),
    "full-text search": lambda uri: Table.open(uri).full_text_search(TextQuery("text", "word", k=30)),
    "spark": by_spark,
}


def ids_of(rows: pa.Table) -> set[int]:
    return set(rows["id"].to_pylist())


def warned(rows: pa.Table) -> list[str]:
    found: list[str] = json.loads(rows.schema.metadata[FRESHNESS_KEY])["frozen"]
    return found


def require_refused(uri: str, match: str) -> None:
    for read in READS.values():
        with pytest.raises(DamagedError, match=match):
            read(uri)


def require_right_after_thaw(uri: str, ids: set[int]) -> None:
    """Require that every read shows these rows without a warning once a person decided, before the merge and after."""
    with pytest.raises(FrozenError):
        merge(uri)
    Table.open(uri).thaw(Decision(Choice.MERGE_AGAIN, "someone"))
    for _ in range(2):
        found = {name: read(uri) for name, read in READS.items()}
        assert {name: ids_of(rows) for name, rows in found.items()} == dict.fromkeys(READS, ids)
        assert {name: warned(rows) for name, rows in found.items()} == {name: [] for name in READS}
        merge(uri)


@pytest.mark.parametrize("seen", [False, True], ids=["unseen", "seen by a job"])
def test_s3_region_that_passed_inherited_progress_on_a_clone_is_refused_before_a_job_runs(uri: str, seen: bool) -> None:
    """Its first generations were taken for merged, and their rows missing, without an error."""
    clone = clone_of(uri)
    lance.dataset(clone).create_scalar_index("text", "INVERTED", replace=True)  # The original's stayed behind.
    if seen:
        merge(clone)
    for number in (10, 11):
        write(clone, number)
    require_refused(clone, "began again")
    with pytest.raises(FrozenError):
        merge(clone)
    require_refused(clone, "began again")
    require_right_after_thaw(clone, {0, 1, 10, 11})


def test_s3_region_that_was_removed_and_passed_its_progress_is_refused_before_a_job_runs(uri: str) -> None:
    shutil.rmtree(Path(uri) / "_mem_wal" / str(REGION))
    for number in (10, 11):
        write(uri, number)
    require_refused(uri, "began again")
    require_right_after_thaw(uri, {0, 1, 10, 11})


def test_s6_region_that_vanished_is_missed_before_a_job_runs(uri: str) -> None:
    """Only what a job had found gone was missed, and the rows that waited in the region were not."""
    other = native_region_id(2)
    write_native_generations(uri, other, [[Put(notes(20))]])
    Table.open(uri).run(GcRequest(dry_run=False))
    assert ids_of(Table.open(uri).to_arrow()) == {0, 1, 20}
    shutil.rmtree(Path(uri) / "_mem_wal" / str(other))
    require_refused(uri, "missing or damaged")


def turned_back(uri: str) -> None:
    """Restore the version before the merge."""
    lance.dataset(uri, version=lance.dataset(uri).version - 1).restore()


def overwritten(uri: str) -> None:
    lance.write_dataset(notes(5), uri, mode="overwrite")
    lance.dataset(uri).create_scalar_index("text", "INVERTED")
    lance.dataset(uri).initialize_mem_wal(unsharded=True)


@pytest.mark.parametrize("change", [turned_back, overwritten])
def test_s2_turned_back_progress_is_told_by_every_read_before_a_job_runs(
    uri: str, change: Callable[[str], None]
) -> None:
    """Such a read had rows missing or too many, and its freshness said nothing."""
    assert {name: warned(read(uri)) for name, read in READS.items()} == {name: [] for name in READS}
    change(uri)
    found = {name: warned(read(uri)) for name, read in READS.items()}
    assert found == {name: ["progress-went-back"] for name in READS}


def test_index_that_was_made_anew_with_nothing_merged_is_told_before_a_job_runs(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(notes(0), uri)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    merge(uri)
    write(uri, 1)
    assert warned(Table.open(uri).to_arrow()) == []
    lance.dataset(uri).restore()
    assert warned(Table.open(uri).to_arrow()) == []
    lance.write_dataset(notes(5), uri, mode="overwrite")
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    rows = Table.open(uri).to_arrow()
    assert ids_of(rows) == {1, 5}
    assert warned(rows) == ["index-made-anew"]


def test_region_with_newer_manifests_than_its_base_table_is_refused(uri: str) -> None:
    """A copy that took the base table first: what was merged and collected meanwhile is nowhere."""
    write(uri, 2)
    write(uri, 3)
    [_, *later] = Table.open(uri).opened.manifests.load(REGION).flushed_generations[-2:]
    Vandal(BaseTable.open(uri)).manifest(REGION, flushed_generations=tuple(later))
    require_refused(uri, match="a generation of a region is neither merged nor recorded")


def test_table_that_was_turned_back_behind_what_was_collected_answers_and_warns(uri: str) -> None:
    """Its rows are what the version says that somebody restored."""
    write(uri, 2)
    Vandal(BaseTable.open(uri)).manifest(REGION, flushed_generations=())
    lance.dataset(uri, version=lance.dataset(uri).version - 1).restore()
    found = {name: read(uri) for name, read in READS.items()}
    assert {name: warned(rows) for name, rows in found.items()} == {name: ["progress-went-back"] for name in READS}


def test_snapshot_of_a_table_that_was_turned_back_warns(uri: str) -> None:
    turned_back(uri)
    assert warned(Table.open(uri).to_arrow(consistency="snapshot")) == ["progress-went-back"]


def test_reader_that_stays_open_notices_and_follows_the_decision_at_once(uri: str) -> None:
    table = Table.open(uri)
    assert warned(table.to_arrow()) == []
    turned_back(uri)
    assert warned(table.to_arrow()) == ["progress-went-back"]
    with pytest.raises(FrozenError):
        merge(uri)
    Table.open(uri).thaw(Decision(Choice.RESTORE_PROGRESS, "someone"))
    assert warned(table.to_arrow()) == []


def test_comparison_asks_the_store_for_nothing_but_the_record(uri: str) -> None:
    """The first view reads the record, as it did to tell freezes; later ones ask nothing more for half a minute."""
    write(uri, 2)
    store = FaultyStore(open_store(uri))
    table = Table(OpenTable.of(BaseTable.open(uri, store=store)))
    asked = []
    for _ in range(3):
        store.calls.clear()
        assert ids_of(table.to_arrow()) == {0, 1, 2}
        asked.append([each.path for each in store.calls])
    record = [sum("_record" in path for path in each) for each in asked]
    assert record == [3, 0, 0]
    assert [sum("_versions" in path for path in each) for each in asked] == [2, 1, 1]


def test_clone_that_no_job_has_seen_is_looked_at_once(uri: str) -> None:
    clone = clone_of(uri)
    other = native_region_id(2)
    write_native_generations(clone, other, [[Put(notes(20))]])
    shutil.copytree(Path(uri) / "_mem_wal" / str(REGION), Path(clone) / "_mem_wal" / str(REGION))
    store = FaultyStore(open_store(clone))
    table = Table(OpenTable.of(BaseTable.open(clone, store=store)))
    for wanted in (1, 0):
        store.calls.clear()
        with pytest.raises(DamagedError):
            table.to_arrow()
        assert sum(each.operation == "list_objects" and "_versions" in each.path for each in store.calls) == wanted


def test_full_text_search_of_a_clone_whose_index_stayed_behind_is_refused(tmp_path: Path) -> None:
    """It found nothing, without an error: the index of a shallow clone lies in the original."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(notes(0, 1), uri)
    lance.dataset(uri).create_scalar_index("text", "INVERTED")
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    clone = clone_of(uri)
    with pytest.raises(InvalidRequestError, match="not in this table"):
        READS["full-text search"](clone)
    lance.dataset(clone).create_scalar_index("text", "INVERTED", replace=True)
    assert ids_of(READS["full-text search"](clone)) == {0, 1}


@pytest.mark.parametrize(
    ("versions", "frozen"),
    [(1, False), (9, False), (1, True)],
    ids=["fewer versions", "more versions", "of a frozen table"],
)
@pytest.mark.parametrize("reads_first", [True, False], ids=["read first", "maintained first"])
def test_table_that_was_dropped_and_made_again_is_judged_by_its_own_history(
    uri: str, versions: int, frozen: bool, reads_first: bool
) -> None:
    """Who held the dropped table open refused reads of the new one, and froze it by a record that went with the old.

    A read forgets that record, too, so that the job shows by itself what it does.
    """
    held = Table.open(uri)
    assert ids_of(held.to_arrow()) == {0, 1}
    assert held.run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO
    if frozen:
        held.freeze("a reason", by="someone")
    shutil.rmtree(uri)
    lance.write_dataset(notes(7), uri)
    for _ in range(versions):
        lance.dataset(uri).update_config({"made": "again"})
    lance.dataset(uri).initialize_mem_wal(unsharded=True)

    if reads_first:
        assert ids_of(held.to_arrow()) == {7}
    assert held.run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO
    write(uri, 8)
    assert held.run(MergeRequest()).outcome is JobOutcome.DONE
    assert ids_of(Table.open(uri).to_arrow()) == {7, 8}
    assert Table.open(uri).status().frozen == ()
