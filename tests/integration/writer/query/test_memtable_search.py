"""The MemTables of a writer answer conditions, vectors and words, with indexes and without, as scans do."""

import gc
import weakref
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.writer import RegionWriter
from memwal_core.writer.region_writer import RegionView
from testkit.tables.regions import create_region, writer_settings

DIMENSION = 8
KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("text", pa.string()),
        pa.field("kind", pa.int32()),
        pa.field("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)
WORDS = ("quick", "foxes", "jumped", "over", "lazy", "dogs", "again", "and")


def _rows(first: int, count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng((first, seed))
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "text": [" ".join(rng.choice(WORDS, int(size))) for size in rng.integers(1, 9, count)],
            "kind": pa.array(rng.integers(0, 5, count), pa.int32()),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(count * DIMENSION, np.float32)), DIMENSION),
        },
        schema=SCHEMA,
    )


def _table(path: Path, kind: str = "IVF_FLAT", metric: str = "l2") -> BaseTable:
    dataset = lance.write_dataset(_rows(0, 300), str(path / "t.lance"))
    more = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
    dataset.create_index("vec", kind, name="vec_idx", metric=metric, num_partitions=4, **more)
    dataset.create_scalar_index("kind", "BTREE", name="kind_idx")
    dataset.create_scalar_index("text", "INVERTED", name="text_idx", stem=True, remove_stop_words=True)
    table = BaseTable.open(dataset.uri, settings=writer_settings())
    table.create_mem_wal_index((), ["vec_idx", "kind_idx", "text_idx"])
    return table


def _written(table: BaseTable, *, indexed: bool) -> RegionWriter:
    """Write keys 0 to 89: some twice, some in two generations, some deleted in either."""
    settings = writer_settings(indexed_write=indexed)
    writer = RegionWriter.open(table.with_settings(settings), create_region(table))
    writer.put(_rows(0, 40))
    writer.put(_rows(30, 30, seed=1))
    writer.delete(pa.table({"id": [3, 35]}))
    writer.rotate()
    for start in range(50, 90, 10):
        writer.put(_rows(start, 10, seed=2))
    writer.put(_rows(3, 1, seed=3))
    writer.delete(pa.table({"id": [7, 55]}))
    return writer


def _expected() -> pa.Table:
    newest: dict[int, dict] = {}
    for rows in (_rows(0, 40), _rows(30, 30, seed=1)):
        newest.update({row["id"]: row for row in rows.to_pylist()})
    del newest[35]
    for rows in [_rows(start, 10, seed=2) for start in range(50, 90, 10)] + [_rows(3, 1, seed=3)]:
        newest.update({row["id"]: row for row in rows.to_pylist()})
    del newest[7], newest[55]
    return pa.Table.from_pylist(list(newest.values()), schema=SCHEMA)


def _exact(rows: pa.Table, query: np.ndarray, metric: str) -> np.ndarray:
    vectors = np.stack(rows.column("vec").to_pylist()).astype(np.float64)
    if metric == "l2":
        return ((vectors - query) ** 2).sum(axis=1)
    products = vectors @ query.astype(np.float64)
    if metric == "dot":
        return 1 - products
    return 1 - products / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query.astype(np.float64)))


@pytest.mark.req("WRT-32", "WRT-04", "WRT-48")
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("condition", ["kind = 2", "kind > 1 AND id < 60", "text LIKE '%fox%'", "kind IS NULL"])
def test_conditions_find_the_newest_rows_and_no_others(tmp_path: Path, condition: str, indexed: bool) -> None:
    writer = _written(_table(tmp_path), indexed=indexed)
    found = writer.search.matching(condition).sort_by("id")
    wanted = lance.write_dataset(_expected(), str(tmp_path / "expected")).to_table(filter=condition).sort_by("id")
    assert found.to_pydict() == wanted.to_pydict()


@pytest.mark.req("WRT-32", "WRT-50", "WRT-04")
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("kind", "metric"), [("IVF_FLAT", "l2"), ("IVF_FLAT", "cosine"), ("IVF_PQ", "l2"), ("IVF_FLAT", "dot")]
)
def test_the_nearest_rows_are_those_of_an_exact_scan(tmp_path: Path, kind: str, metric: str, indexed: bool) -> None:
    writer = _written(_table(tmp_path, kind, metric), indexed=indexed)
    expected = _expected()
    query = np.random.default_rng(5).random(DIMENSION, np.float32)
    for k in (1, 10, 500):
        found = writer.search.nearest("vec", query, k, metric)
        distances = _exact(expected, query, metric)
        order = np.argsort(distances)[:k]
        assert found.column("id").to_pylist() == expected.column("id").take(pa.array(order)).to_pylist()
        assert np.allclose(found.column("_distance").to_numpy(), distances[order], atol=1e-5)


@pytest.mark.req("WRT-32", "WRT-51", "WRT-04")
@pytest.mark.parametrize("indexed", [True, False])
def test_words_are_found_and_scored_as_by_one_index_over_the_newest_rows(tmp_path: Path, indexed: bool) -> None:
    writer = _written(_table(tmp_path), indexed=indexed)
    alone = lance.write_dataset(_expected(), str(tmp_path / "expected"))
    alone.create_scalar_index("text", "INVERTED", stem=True, remove_stop_words=True)
    for words in ("fox", "jumping dogs", "lazily", "absent"):
        found = writer.search.with_words("text", words, k=1000)
        wanted = alone.to_table(columns=["id", "_score"], full_text_query=words, limit=1000)
        scores = dict(zip(wanted.column("id").to_pylist(), wanted.column("_score").to_pylist(), strict=True))
        got = dict(zip(found.column("id").to_pylist(), found.column("_score").to_pylist(), strict=True))
        assert got.keys() == scores.keys()
        assert all(got[key] == pytest.approx(scores[key], rel=1e-5) for key in scores)
    before = writer.search.with_words("text", "fox", k=1000).num_rows
    writer.put(pa.table({"id": [1000], "text": ["one more fox"], "kind": [1], "vec": [[0.0] * DIMENSION]}, SCHEMA))
    assert writer.search.with_words("text", "fox", k=1000).num_rows == before + 1


@pytest.mark.req("WRT-32")
def test_an_indexed_put_leaves_nothing_to_index_for_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    writer = _written(_table(tmp_path), indexed=True)

    def refuse(_: object, recipe, column: str) -> None:
        built.append(f"{recipe.name} on {column}")

    monkeypatch.setattr("memwal_core.writer.query.pieces.build_index", refuse)
    assert writer.search.nearest("vec", np.zeros(DIMENSION, np.float32), 3).num_rows == 3
    assert writer.search.matching("kind = 1").num_rows
    assert built == []
    writer.put(_rows(2000, 5))
    assert sorted(built) == ["kind_idx on kind", "text_idx on text", "vec_idx on vec"]


@pytest.mark.req("WRT-32", "WRT-49", "WRT-23")
def test_an_indexed_put_is_in_the_key_filter_and_after_a_crash_again(tmp_path: Path) -> None:
    table = _table(tmp_path)
    settings = writer_settings(indexed_write=True)
    region_id = create_region(table)
    writer = RegionWriter.open(table.with_settings(settings), region_id)
    writer.put(_rows(0, 200))
    inside, outside = pa.table({"id": np.arange(200)}), pa.table({"id": np.arange(10_000, 20_000)})
    covered = writer._indexes.of(writer.memtable)
    assert covered._may_contain(inside).all()
    assert covered._may_contain(outside).mean() < 0.01
    successor = RegionWriter.open(table.with_settings(settings), region_id)
    assert successor._indexes.refreshed(successor.memtable)._may_contain(inside).all()
    assert successor.lookup(inside).num_rows == 200
    assert successor.lookup(outside).num_rows == 0


@pytest.mark.req("WRT-54", "MEM-32", "MEM-33")
def test_an_index_that_a_reader_holds_answers_after_the_flush_as_before_and_then_goes(tmp_path: Path) -> None:
    table = _table(tmp_path)
    writer = RegionWriter.open(table.with_settings(writer_settings(indexed_write=True)), create_region(table))
    writer.put(_rows(0, 50))
    view: RegionView | None = writer.view()
    memtable = view.memtables[0]
    index = writer._indexes.of(memtable)
    keys = pa.table({"id": [5, 40, 77]})
    before = index.lookup(keys)
    record = writer.flush()
    after = index.lookup(keys)
    assert after.equals(before)
    flushed = lance.dataset(f"{table.uri}/_mem_wal/{writer.region_id}/{record.path}").to_table(filter="id IN (5, 40)")
    assert after.column("text").to_pylist() == flushed.column("text").to_pylist()
    gone = weakref.ref(memtable)
    del view, memtable, index
    gc.collect()
    assert gone() is None
    assert before.num_rows == 2  # What a look-up returned is the caller's own.


def test_a_search_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    writer = _written(_table(tmp_path), indexed=False)
    with pytest.raises(InvalidRequestError, match="does not fit"):
        writer.search.nearest("nothing", np.zeros(DIMENSION, np.float32))
    with pytest.raises(InvalidRequestError, match="no full-text index"):
        writer.search.with_words("kind", "fox")
    with pytest.raises(InvalidRequestError):
        writer.search.matching("no such column = 1")
    for ignored in ("kind = 1 AN id = 2", "kind = 1; DROP TABLE t", "kind = ?"):
        with pytest.raises(InvalidRequestError):
            writer.search.matching(ignored)
    for column, vector in (
        ("kind", np.zeros(DIMENSION, np.float32)),
        ("vec", np.zeros(DIMENSION + 1, np.float32)),
        ("vec", np.zeros((2, DIMENSION), np.float32)),
        ("vec", None),
        ("vec", "near"),
    ):
        with pytest.raises(InvalidRequestError, match="the vector does not fit the column"):
            writer.search.nearest(column, vector)
    with pytest.raises(InvalidRequestError, match="does not fit"):
        writer.search.nearest("vec", np.zeros(DIMENSION, np.float32), k=2.5)


def test_bounds_of_a_range_that_do_not_compare_with_keys_are_refused(tmp_path: Path) -> None:
    writer = _written(_table(tmp_path), indexed=False)
    for low, high in (("a", None), (None, (1, 2)), ({}, None)):
        with pytest.raises(InvalidRequestError, match="do not compare with keys"):
            writer.scan(low, high)
