"""While an index lags behind merges, flushed MemTables stand in for it, and nothing is missed or doubled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from types import MappingProxyType

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.query import MatchQuery

from memwal_core.base_table import BaseTable
from memwal_core.base_table.history.fragment_ages import fragments_of_merges
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency, ReadPlan
from memwal_core.reader.index_gap.gap import plan_gap
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text import search as text
from memwal_core.reader.text.search import TextColumn, TextQuery
from memwal_core.reader.text.segment import MemorySegment
from memwal_core.reader.vector import cached_vectors
from memwal_core.reader.vector.search import VectorQuery, VectorSearch
from memwal_core.reader.view import TableView
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA, make_people_table, people
from testkit.tables.readable import keys_of

DIMENSION = 8
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def _rows(ids: list[int], rng: np.random.Generator) -> pa.Table:
    vectors = rng.normal(size=(len(ids), DIMENSION)).astype(np.float32)
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    return pa.table([pa.array(ids, pa.int64()), values], schema=SCHEMA)


def _index(uri: str) -> None:
    lance.dataset(uri).create_index("vec", "IVF_FLAT", name="vec_idx", num_partitions=1)


def _merged_with_gap(uri: str, rng: np.random.Generator, mode: str = "create") -> RegionId:
    """Generations 1 to 4 merged, the base index covers none of them; 5 flushed. Flushed MemTables are indexed."""
    lance.write_dataset(_rows(list(range(100)), rng), uri, mode=mode)
    _index(uri)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 1)])
    with TableWriter.open(base) as writer:
        for number in range(1, 6):
            writer.put(_rows([*range(number * 10, number * 10 + 15), 1000 + number], rng))
            writer.flush()
            if number == 4:
                Table.open(uri).run(MergeRequest())
        (region,) = (each.region_id for each in writer.writers.values())
    for directory in sorted(Path(uri).glob("_mem_wal/*/*_gen_*")):
        _index(str(directory))
    return region


def _plan(view: TableView, caught_up: dict[str, int]) -> ReadPlan:
    """Return the plan as if indexes had caught up to some generations."""
    plan = view.scan().plan
    assert plan.state.details is not None
    region = plan.regions[0].region_id
    catchup = MappingProxyType({name: MappingProxyType({region: at}) for name, at in caught_up.items()})
    details = replace(plan.state.details, index_catchup=catchup)
    return replace(plan, state=replace(plan.state, details=details))


@pytest.mark.req("RD-29", "RD-31", "RD-66", "RD-67", "RD-68")
def test_generations_between_catch_up_and_merge_stand_in_per_index(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    region = _merged_with_gap(uri, np.random.default_rng(1))
    plan = _plan(Table.open(uri).view(), {"ivf": 3, "fts": 4})

    def standing_in(index: str) -> list[int]:
        return [each.generation for each in plan_gap(plan, index, lambda _: True).standing_in.get(region, ())]

    assert [each.generation for each in plan.regions[0].generations] == [5]
    assert standing_in("ivf") == [4]
    assert standing_in("fts") == []
    assert standing_in("never built") == [4, 3, 2, 1]


@pytest.mark.req("RD-33")
def test_gap_with_an_unusable_generation_falls_back_to_the_base_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    region = _merged_with_gap(uri, np.random.default_rng(1))
    plan = _plan(Table.open(uri).view(), {"ivf": 2})
    gap = plan_gap(plan, "ivf", lambda source: source.generation != 3)

    assert gap.is_empty
    assert gap.uncovered == (region,)


@pytest.mark.req("RD-67")
def test_plan_of_a_search_over_a_gap_names_the_generations_that_stand_in(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    region = _merged_with_gap(uri, np.random.default_rng(1))
    view = Table.open(uri).view()
    text = view.explain_vector_search(VectorQuery("vec", np.zeros(DIMENSION, np.float32), k=3))

    # Generations 1 to 4 are merged and not indexed, 5 is not merged; only 5 makes rows of the base table stale.
    assert text.replace(str(region), "A") == (
        "GlobalLimitExec: limit=3\n"
        "  SortExec: order_by=[_dist ASC]\n"
        "    FilterStaleExec: newer_keys=[region_A[gen=5]]\n"
        "      UnionExec\n"
        "        KNNExec: base_table[gen=-1], k=3\n"
        "        KNNExec: region_A[gen=5], k=3\n"
        "        KNNExec: region_A[gen=4], k=3\n"
        "        KNNExec: region_A[gen=3], k=3\n"
        "        KNNExec: region_A[gen=2], k=3\n"
        "        KNNExec: region_A[gen=1], k=3"
    )


def _assert_exact(view: TableView, rng: np.random.Generator, filter_sql: str | None = None) -> None:
    rows = view.scan(ScanRequest(filter_sql=filter_sql)).to_arrow()
    ids = np.array(rows.column("id").to_pylist())
    vectors = np.array(rows.column("vec").to_pylist(), dtype=np.float32)
    for _ in range(5):
        query = rng.normal(size=DIMENSION).astype(np.float32)
        found = view.vector_search(VectorQuery("vec", query, k=10, columns=("id",), filter_sql=filter_sql))
        expected = ids[np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")[:10]]
        assert found.column("id").to_pylist() == expected.tolist()


@pytest.mark.req("RD-28", "RD-29", "RD-30", "RD-32", "RD-33")
@pytest.mark.parametrize("change", ["none", "direct append", "direct delete", "direct upsert", "collected"])
def test_search_over_a_gap_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    rng = np.random.default_rng(17)
    uri = str(tmp_path / "t")
    _merged_with_gap(uri, rng)
    match change:
        case "direct append":
            lance.write_dataset(_rows(list(range(5000, 5040)), rng), uri, mode="append")
        case "direct delete":
            lance.dataset(uri).delete("id >= 20 AND id < 30")
        case "direct upsert":  # New values of rows that flushed MemTables have, too.
            upsert = lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            upsert.execute(_rows(list(range(20, 30)), rng))
        case "collected":
            rmtree(next(Path(uri).glob("_mem_wal/*/*_gen_2")))
    view = Table.open(uri).view(Consistency.LATEST)
    search = VectorSearch(view._opened, VectorQuery("vec", np.zeros(DIMENSION, np.float32)))
    gap, bridged = search.gap(), search._gap()

    assert gap is not None
    assert gap.is_empty == (bridged is None) == (change == "collected")
    assert bridged is None or bool(bridged.scanned) == (change in {"direct append", "direct upsert"})
    _assert_exact(view, rng)
    # What does not fit into memory is searched in flushed MemTables that stand in.
    monkeypatch.setattr(cached_vectors, "MAX_HELD_BYTES", 0)
    _assert_exact(Table.open(uri).view(Consistency.LATEST), rng)


def test_fragments_of_merges_are_known_until_their_rows_get_other_values(tmp_path: Path) -> None:
    base = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)

    def made_by_merges() -> list[int]:
        state = base.state()
        return sorted(fragments_of_merges(base, state, base.dataset(state.version).fragment_ids()))

    for number in range(2):
        with TableWriter.open(base) as writer:
            writer.put(people(*range(10 * number, 10 * number + 10)))
            writer.flush()
        Table.open(base.uri).run(MergeRequest())
    merged = made_by_merges()
    assert len(merged) == 2
    lance.dataset(base.uri).delete("id = 5")
    assert made_by_merges() == merged

    lance.dataset(base.uri).merge_insert("id").when_matched_update_all().execute(people(13, name="new"))
    assert made_by_merges() == merged
    dataset = lance.dataset(base.uri)
    names = people(7, name="new").select(["id", "name"])
    fragment, fields = dataset.get_fragment(merged[0]).update_columns(names, left_on="id", right_on="id")
    in_place = lance.LanceOperation.Update([], [fragment], [], fields, update_mode="rewrite_columns")
    lance.LanceDataset.commit(base.uri, in_place, read_version=dataset.version)
    assert made_by_merges() == merged[1:]
    lance.dataset(base.uri).optimize.compact_files()
    assert made_by_merges() == []


@pytest.mark.req("RD-28", "RD-53")
def test_filter_whose_index_covers_less_than_the_vector_index_hides_no_row(tmp_path: Path) -> None:
    """Lance's fast search lets a scalar index filter, and finds no row of a fragment which that one lacks."""
    rng = np.random.default_rng(29)
    uri = str(tmp_path / "t")
    lance.write_dataset(_rows(list(range(1000, 1010)), rng), uri).create_scalar_index("id", "BTREE")
    _merged_with_gap(uri, rng, mode="append")

    assert VectorSearch(
        Table.open(uri).view()._opened, VectorQuery("vec", np.zeros(DIMENSION, np.float32), filter_sql="id > 5")
    )._gap()
    _assert_exact(Table.open(uri).view(), rng, "id > 5")


def test_filter_that_ends_in_a_comment_is_understood_where_flushed_memtables_stand_in(tmp_path: Path) -> None:
    """The parenthesis that was put behind it belonged to the comment, and Lance refused the search."""
    rng = np.random.default_rng(31)
    uri = str(tmp_path / "t")
    _merged_with_gap(uri, rng)

    _assert_exact(Table.open(uri).view(), rng, "id > 5 -- all but a few")


TEXTS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA), pa.field("text", pa.string())]
)
WORDS = np.array([f"word{number}" for number in range(40)])


def _texts(ids: list[int], rng: np.random.Generator) -> pa.Table:
    chosen = [" ".join(rng.choice(WORDS, size)) for size in rng.integers(2, 20, len(ids))]
    return pa.table([pa.array(ids, pa.int64()), pa.array(chosen)], schema=TEXTS)


def _texts_with_gap(uri: str, rng: np.random.Generator) -> None:
    """Generations 1 to 3 merged, the base index covers none of them; 4 flushed. Flushed MemTables are indexed."""
    lance.write_dataset(_texts(list(range(150)), rng), uri)
    lance.dataset(uri).create_scalar_index("text", "INVERTED", name="by_text", stem=False)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 1)], ["by_text"])
    with TableWriter.open(base) as writer:
        for number in range(1, 5):
            writer.put(_texts([*range(number * 20, number * 20 + 30), 1000 + number], rng))
            writer.delete(keys_of(number, 140 + number))
            writer.flush()
            if number == 3:
                Table.open(uri).run(MergeRequest())


@pytest.mark.req("RD-29", "RD-30", "RD-33", "RD-55", "RD-67")
@pytest.mark.parametrize("change", ["none", "direct append", "direct delete", "direct update", "collected"])
def test_text_search_over_a_gap_scores_as_one_index_over_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    if change == "none":  # Sources are searched at once, as those of a remote table are.
        monkeypatch.setattr(text, "LOCAL_THREADS", text.REMOTE_THREADS)
    rng = np.random.default_rng(23)
    uri = str(tmp_path / "t")
    _texts_with_gap(uri, rng)
    match change:
        case "direct append":
            lance.write_dataset(_texts(list(range(5000, 5040)), rng), uri, mode="append")
        case "direct delete":
            lance.dataset(uri).delete("id >= 60 AND id < 70")
        case "direct update":
            lance.dataset(uri).update({"text": "'word1 and word3 are new'"}, where="id >= 60 AND id < 70")
        case "collected":
            rmtree(next(Path(uri).glob("_mem_wal/*/*_gen_2")))
    view = Table.open(uri).view()
    segments = TextColumn(view._opened, "text")
    gap = segments.segments.gap()
    standing = [each.generation for sources in gap.standing_in.values() for each in sources]
    in_memory = [each for each in segments.sources() if isinstance(each, MemorySegment)]

    assert standing == ([] if change == "collected" else [3, 2, 1])
    is_scanned = change in {"direct append", "direct update", "collected"}
    assert len(in_memory) == (1 if is_scanned else 0)  # Else everything has an index.
    whole = lance.write_dataset(view.scan().to_arrow().replace_schema_metadata(None), str(tmp_path / "one"))
    whole.create_scalar_index("text", "INVERTED", stem=False)
    for query in ("word1", "word3 word17", "word5 word6 word7 word8"):
        one = whole.scanner(columns=["id", "_score"], full_text_query=MatchQuery(query, "text"), limit=20).to_table()
        expected = one.column("_score").to_pylist()
        found = view.full_text_search(TextQuery("text", query, k=20, columns=("id",)))
        assert found.column("_score").to_pylist() == pytest.approx(expected, rel=1e-4)
        certain = {row["id"] for row in one.to_pylist() if row["_score"] > expected[-1] * 1.001}
        assert certain <= set(found.column("id").to_pylist())
