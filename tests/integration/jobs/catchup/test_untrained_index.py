"""Vector indexes that a table is too small to train: defined, without a model, covering nothing."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, read_coverage
from memwal_core.format.paths import generation_path
from memwal_core.jobs.catchup.plan import CatchupVerdict
from memwal_core.jobs.catchup.report import IndexResult
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.plan import CompactVerdict
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.items import Gate, Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.observe.signals import Signal
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.articles import ARTICLES, DIMENSIONS, articles, make_articles_table
from testkit.tables.garbage import drop_old_versions
from testkit.tables.native_regions import Put, native_region_id, write_native_generations

FEW, ENOUGH = 100, 256
"""Rows of the table, and the vectors that a product quantizer of 8 bits needs."""


def small_table(tmp_path: Path, *, maintained: tuple[str, ...] = ("topic_idx",)) -> BaseTable:
    kinds = ("BTREE", "BITMAP", "IVF_PQ")
    return make_articles_table(str(tmp_path / "t"), rows=FEW, kinds=kinds, maintained=maintained)


def put(table: BaseTable, rows: pa.Table) -> Table:
    """Write rows, flush and merge them."""
    with TableWriter.open(table) as writer:
        writer.put(rows)
        writer.flush()
    admin = Table.open(table.uri)
    admin.run(MergeRequest())
    return admin


def without_vectors(rows: pa.Table) -> pa.Table:
    vectors = pa.nulls(rows.num_rows, pa.list_(pa.float32(), DIMENSIONS))
    return rows.set_column(ARTICLES.get_field_index("vec"), ARTICLES.field("vec"), vectors)


def finds_itself(table: BaseTable, rows: pa.Table) -> bool:
    """Return whether the last row is the nearest to its own vector."""
    vector = np.asarray(rows.column("vec")[-1].as_py(), dtype=np.float32)
    found = MergedReader(table).vector_search(VectorQuery("vec", vector, 1, ("id",), refine_factor=10))
    return found.column("id").to_pylist() == rows.column("id").to_pylist()[-1:]


@pytest.mark.req("CAT-08", "CAT-15")
def test_index_that_cannot_be_trained_yet_blocks_no_job_and_is_never_recorded(tmp_path: Path) -> None:
    """Its missing model was taken for a lost file: every catch-up and compaction of the table was blocked."""
    admin = put(small_table(tmp_path), articles(FEW, 50))

    report = admin.run(CatchupRequest())

    assert report.outcome is JobOutcome.DONE
    assert {each.name: (each.verdict, each.result) for each in report.indexes} == {
        "id_idx": (CatchupVerdict.BEHIND, IndexResult.EXTENDED),
        "topic_idx": (CatchupVerdict.BEHIND, IndexResult.EXTENDED),
        "vec_idx": (CatchupVerdict.UNTRAINED, IndexResult.NONE),
    }
    assert [each.vectors_missing for each in report.plan.indexes] == [0, 0, ENOUGH - FEW - 50]
    assert "vec_idx" not in admin.base.state().require_details().index_catchup
    version = admin.base.state().version
    assert admin.run(CatchupRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert admin.base.state().version == version
    assert finds_itself(admin.base, articles(FEW, 50))


def test_index_that_cannot_be_trained_yet_holds_no_flushed_memtable(tmp_path: Path) -> None:
    admin = put(small_table(tmp_path, maintained=("topic_idx", "vec_idx")), articles(FEW, 50))
    admin.run(CatchupRequest())
    drop_old_versions(admin.base.uri)

    items = [item for item in admin.run(GcRequest()).plan.items if item.kind is Kind.FLUSHED_MEMTABLE]

    assert items
    assert [item.evidence for item in items if item.reason is Gate.INDEX_BEHIND] == []
    assert all(item.action is not None for item in items)
    lags = [each for each in admin.health().readings if each.signal is Signal.INDEX_LAG]
    assert lags
    assert not [each for each in lags if "vec_idx" in each.subject]
    region = admin.opened.manifests.region_ids()[0]
    why = [each for each in admin.why(region).verdicts if each.facts.get("index") == "vec_idx"]
    assert [(each.acts, "not trained" in each.reason) for each in why] == [(False, True)]


def test_index_whose_rows_are_all_gone_is_told_alike_everywhere(tmp_path: Path) -> None:
    """Catch-up waited for vectors to train it, while the signal paged for the generations that it lacked."""
    kinds = ("BTREE", "IVF_PQ")
    table = make_articles_table(str(tmp_path / "t"), rows=2 * ENOUGH, kinds=kinds, maintained=("vec_idx",))
    admin = put(table, articles(2 * ENOUGH, 20))
    table.dataset().delete(f"id < {2 * ENOUGH}")
    drop_old_versions(table.uri)

    (planned,) = [each for each in admin.run(CatchupRequest()).indexes if each.name == "vec_idx"]
    facts = {each.name: each for each in admin.base.indexes()}
    readings = [each for each in admin.health().readings if each.signal is Signal.INDEX_LAG and each.value]
    why = [each for each in admin.why(admin.opened.manifests.region_ids()[0]).verdicts if each.job == "catchup"]
    items = [each for each in admin.run(GcRequest()).plan.items if each.kind is Kind.FLUSHED_MEMTABLE]

    assert planned.verdict is CatchupVerdict.UNTRAINED
    assert not facts["vec_idx"].is_trained
    assert readings == []
    assert [each.reason for each in why if each.facts["index"] == "vec_idx" and "not trained" not in each.reason] == []
    assert [each.evidence for each in items if each.reason is Gate.INDEX_BEHIND] == []
    assert [each.finding_id for each in admin.doctor().findings if "index" in each.finding_id] == []
    assert finds_itself(admin.base, articles(2 * ENOUGH, 20))


@pytest.mark.parametrize("without", [False, True], ids=["256 vectors", "256 rows, one without a vector"])
def test_first_extension_with_enough_vectors_trains_the_index(tmp_path: Path, without: bool) -> None:
    rows = articles(FEW, ENOUGH - FEW)
    if without:
        rows = pa.concat_tables([rows.slice(1), without_vectors(rows.slice(0, 1))])
    admin = put(small_table(tmp_path), rows)

    report = admin.run(CatchupRequest())

    state = admin.base.state()
    covered = read_coverage(admin.base, state.version).named("vec_idx")
    assert covered is not None
    if without:
        assert (covered.is_trained, covered.vectors_missing) == (False, 1)
        assert "vec_idx" not in state.require_details().index_catchup
        return
    assert (covered.is_trained, covered.unindexed_rows) == (True, 0)
    assert next(each.result for each in report.indexes if each.name == "vec_idx") is IndexResult.EXTENDED
    details = state.require_details()
    assert details.index_catchup["vec_idx"] == details.merged_generations
    assert admin.run(CatchupRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert finds_itself(admin.base, rows)


def test_memtables_are_flushed_without_an_untrained_index_and_with_it_once_it_is_trained(tmp_path: Path) -> None:
    """The flush looked for centroids that do not exist and failed for ever, so nothing left the WAL."""
    table = small_table(tmp_path, maintained=("vec_idx",))
    indexes = []
    for first, count in ((FEW, 50), (FEW + 50, ENOUGH - FEW - 50), (ENOUGH, 40)):
        admin = put(table, articles(first, count))
        admin.run(CatchupRequest())
        manifest = admin.opened.manifests.load(admin.opened.manifests.region_ids()[0])
        newest = manifest.flushed_generations[-1]
        dataset = lance.dataset(table.store.uri_of(generation_path(manifest.region_id, newest.path)))
        indexes.append([index.name for index in dataset.describe_indices()])
        assert finds_itself(table, articles(first, count))

    assert indexes == [[], [], ["vec_idx"]]


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ"])
def test_index_of_an_empty_table_needs_one_vector(tmp_path: Path, kind: str) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=0, kinds=(kind,), maintained=("vec_idx",))
    admin = put(table, without_vectors(articles(0, 5)))
    report = admin.run(CatchupRequest())
    assert [(each.verdict, each.result) for each in report.indexes] == [(CatchupVerdict.UNTRAINED, IndexResult.NONE)]
    admin = put(table, articles(5, 5))
    assert admin.run(CatchupRequest()).outcome is JobOutcome.DONE
    assert finds_itself(table, articles(5, 5))


def test_fragments_are_rewritten_although_an_index_is_not_trained(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    for number in range(2):
        admin = put(table, articles(FEW + 10 * number, 10))
    before = table.dataset().count_rows()

    report = admin.run(CompactRequest(force=True))

    assert (report.outcome, report.plan.verdict) == (JobOutcome.DONE, CompactVerdict.FORCED)
    assert report.fragments_after == 1
    assert table.dataset().count_rows() == before
    assert finds_itself(table, articles(FEW, 10))


def test_untrained_index_over_a_field_inside_of_a_column_blocks_no_job(tmp_path: Path) -> None:
    vectors = pa.list_(pa.float32(), DIMENSIONS)
    inside = pa.field("in", pa.struct([("vec", vectors)]))
    schema = pa.schema([ARTICLES.field("id"), ARTICLES.field("topic"), inside])

    def rows(first: int, count: int) -> pa.Table:
        found = articles(first, count)
        nested = pa.StructArray.from_arrays([found.column("vec").combine_chunks()], fields=[pa.field("vec", vectors)])
        return pa.table([found.column("id"), found.column("topic"), nested], schema=schema)

    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(rows(0, FEW), uri)
    dataset.create_scalar_index("topic", "BITMAP", name="topic_idx")
    dataset.create_index("in.vec", "IVF_PQ", name="vec_idx", num_partitions=1, num_sub_vectors=4)
    BaseTable.open(uri).create_mem_wal_index([])
    write_native_generations(uri, native_region_id(1), [[Put(rows(FEW, 50))]])
    admin = Table.open(uri)
    admin.run(MergeRequest())

    report = admin.run(CatchupRequest())

    assert {each.name: each.verdict for each in report.indexes} == {
        "topic_idx": CatchupVerdict.BEHIND,
        "vec_idx": CatchupVerdict.UNTRAINED,
    }
    assert [each.vectors_missing for each in report.plan.indexes] == [0, ENOUGH - FEW - 50]
