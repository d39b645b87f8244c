"""Vector searches rank the newest version of each row, as brute force over the whole view does."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.reader import Consistency
from memwal_core.reader.vector import cached_vectors
from memwal_core.reader.vector.search import VectorQuery, VectorSearch
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA
from testkit.tables.readable import keys_of, read_with

DIMENSION = 8
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("vec", pa.list_(pa.float32(), DIMENSION)),
        pa.field("kind", pa.int32()),
    ]
)


def _rows(ids: list[int], rng: np.random.Generator) -> pa.Table:
    vectors = rng.normal(size=(len(ids), DIMENSION)).astype(np.float32)
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    return pa.table([pa.array(ids), values, pa.array([i % 3 for i in ids], pa.int32())], schema=SCHEMA)


def _table(uri: str, base_rows: int, rng: np.random.Generator, *, indexed: bool) -> BaseTable:
    lance.write_dataset(_rows(list(range(base_rows)), rng), uri)
    if indexed:
        lance.dataset(uri).create_index("vec", "IVF_PQ", name="vec_idx", num_partitions=4, num_sub_vectors=4)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 2)])
    return table


def _points(rows: pa.Table) -> dict[int, npt.NDArray[np.float32]]:
    vectors = (np.asarray(each, np.float32) for each in rows.column("vec").to_pylist())
    return dict(zip(rows.column("id").to_pylist(), vectors, strict=True))


def _nearest(points: dict[int, npt.NDArray[np.float32]], query: npt.NDArray[np.float32], k: int) -> list[int]:
    return sorted(points, key=lambda key: float(((points[key] - query) ** 2).sum()))[:k]


@pytest.mark.req("RD-51", "RD-52", "RD-62", "RD-63", "RD-64")
@pytest.mark.parametrize(
    ("indexed", "held_bytes"), [(False, None), (True, None), (True, 0), (True, 100 * DIMENSION * 4)]
)
def test_ranking_is_that_of_brute_force_over_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool, held_bytes: int | None
) -> None:
    if held_bytes is not None:  # Then generations that do not fit are searched where they are stored.
        monkeypatch.setattr(cached_vectors, "MAX_HELD_BYTES", held_bytes)
    rng = np.random.default_rng(3)
    uri = str(tmp_path / "t")
    base = _table(uri, 400, rng, indexed=indexed)
    first = _rows([*range(100), *range(1000, 1050)], rng)
    deleted = [*range(200, 230), 1000]
    second, third = _rows([*range(50), *range(300, 340)], rng), _rows([*range(40, 60)], rng)
    flushed = {**_points(lance.dataset(uri).to_table()), **_points(first)}
    flushed = {key: point for key, point in flushed.items() if key not in deleted} | _points(second)
    with TableWriter.open(base) as writer:
        writer.put(first)
        writer.flush()
        writer.delete(keys_of(*deleted))
        writer.put(second)
        writer.flush()
        writer.put(third)
        table = read_with(uri, writer.writers.values())
        for consistency, right in (
            (Consistency.LATEST, flushed),
            (Consistency.IN_PROCESS, flushed | _points(third)),
        ):
            view = table.view(consistency)
            for _ in range(5):
                vector = rng.normal(size=DIMENSION).astype(np.float32)
                query = VectorQuery("vec", vector, k=12, columns=("id",), nprobes=4, refine_factor=40)
                found = view.vector_search(query)
                assert found.column("id").to_pylist() == _nearest(right, vector, 12)
                assert found.column("_distance").to_pylist() == sorted(found.column("_distance").to_pylist())


@pytest.mark.req("RD-51")
def test_old_place_of_a_row_that_moved_away_is_not_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    uri = str(tmp_path / "t")
    base = _table(uri, 30, rng, indexed=False)
    old = lance.dataset(uri).to_table(columns=["vec"]).column("vec").to_pylist()
    with TableWriter.open(base) as writer:
        moved = _rows(list(range(10)), rng)
        far = pa.FixedSizeListArray.from_arrays(pa.array(np.full(10 * DIMENSION, 1e6, dtype=np.float32)), DIMENSION)
        writer.put(moved.set_column(1, SCHEMA.field("vec"), far))
        writer.flush()
    found = Table.open(uri).vector_search(VectorQuery("vec", np.asarray(old[3], np.float32), k=20))

    assert found.num_rows == 20
    assert set(found.column("id").to_pylist()) == set(range(10, 30))


@pytest.mark.req("RD-27", "RD-53")
def test_filter_and_region_pruning_apply_before_the_search(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    uri = str(tmp_path / "t")
    with TableWriter.open(_table(uri, 60, rng, indexed=False)) as writer:
        writer.put(_rows(list(range(0, 60, 2)), rng))
        writer.flush()
    view = Table.open(uri).view()
    vector = np.zeros(DIMENSION, np.float32)
    filtered = view.vector_search(VectorQuery("vec", vector, k=60, filter_sql="kind = 1"))
    single = VectorQuery("vec", vector, k=60, filter_sql="id = 4")

    assert sorted(filtered.column("id").to_pylist()) == [i for i in range(60) if i % 3 == 1]
    assert view.explain_vector_search(single).count("KNNExec") == 2  # The base table and one region.
    assert view.vector_search(single).column("id").to_pylist() == [4]


def test_metric_in_capitals_uses_the_index(tmp_path: Path) -> None:
    """It was taken for another one than that of the index, and every vector was measured."""
    _table(str(tmp_path / "t"), 300, np.random.default_rng(13), indexed=True)
    opened = Table.open(str(tmp_path / "t")).view()._opened

    used = {metric: VectorSearch(opened, VectorQuery("vec", np.zeros(DIMENSION), metric=metric)).gap() is not None
            for metric in ("l2", "L2", "cosine")}  # fmt: skip
    assert used == {"l2": True, "L2": True, "cosine": False}


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_second_index_of_a_column_hides_no_row(tmp_path: Path, metric: str) -> None:
    """Lance searched the index that was made first, and was thought to search the first by name, which has more."""
    rng = np.random.default_rng(17)
    uri = str(tmp_path / "t")
    lance.write_dataset(_rows(list(range(100)), rng), uri)
    lance.dataset(uri).create_index("vec", "IVF_FLAT", name="old", num_partitions=1, metric=metric)
    lance.write_dataset(_rows(list(range(100, 200)), rng), uri, mode="append")
    lance.dataset(uri).create_index("vec", "IVF_FLAT", name="new", num_partitions=1, metric="l2")
    lance.write_dataset(_rows(list(range(200, 300)), rng), uri, mode="append")
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 2)])

    points, query = _points(lance.dataset(uri).to_table()), np.zeros(DIMENSION, np.float32)
    found = Table.open(uri).vector_search(VectorQuery("vec", query, k=20, columns=("id",)))
    assert found["id"].to_pylist() == _nearest(points, query, 20)


def test_few_probes_cut_no_rows_off_where_a_flushed_memtable_is_indexed(tmp_path: Path) -> None:
    """The rows of the probed partitions alone came, although the same rows came all once they were merged."""
    rng = np.random.default_rng(11)
    uri = str(tmp_path / "t")
    with TableWriter.open(_table(uri, 0, rng, indexed=False)) as writer:
        writer.put(_rows(list(range(300)), rng))
        writer.flush()
    for directory in Path(uri).glob("_mem_wal/*/*_gen_*"):
        lance.dataset(str(directory)).create_index("vec", "IVF_FLAT", name="vec_idx", num_partitions=8)

    query = VectorQuery("vec", np.zeros(DIMENSION), k=40, columns=("id",), filter_sql="kind = 1", nprobes=1)
    right = {key: point for key, point in _points(Table.open(uri).to_arrow()).items() if key % 3 == 1}
    assert Table.open(uri).vector_search(query)["id"].to_pylist() == _nearest(right, np.zeros(DIMENSION), 40)


def test_unflushed_rows_are_found_in_a_column_that_allows_no_null(tmp_path: Path) -> None:
    """Their vectors had another schema than those of the table, which ended the search in Arrow's words."""
    uri = str(tmp_path / "t")
    schema = pa.schema([each.with_nullable(False) for each in SCHEMA])
    rng = np.random.default_rng(19)
    lance.write_dataset(_rows([1, 2], rng).cast(schema), uri)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 1)])
    with TableWriter.open(table) as writer:
        writer.put(_rows([3], rng).cast(schema))
        writer.flush()
        writer.put(_rows([4], rng).cast(schema))
        found = Table.open(uri).vector_search(VectorQuery("vec", np.zeros(DIMENSION)), consistency=Consistency.DURABLE)

    assert sorted(found["id"].to_pylist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("place", ["base", "flushed", "memory"])
def test_rows_without_a_vector_are_not_found(tmp_path: Path, place: str) -> None:
    rng = np.random.default_rng(9)
    uri = str(tmp_path / "t")
    empty = pa.table([pa.array([100, 101]), pa.nulls(2, SCHEMA.field("vec").type), pa.nulls(2, pa.int32())], SCHEMA)
    base = _table(uri, 5, rng, indexed=False)
    if place == "base":
        lance.write_dataset(empty, uri, mode="append")
    with TableWriter.open(base) as writer:
        if place != "base":
            writer.put(pa.concat_tables([empty, _rows([102], rng)]))
        if place == "flushed":
            writer.flush()
        view = Table.open(uri).view(Consistency.DURABLE)
    found = view.vector_search(VectorQuery("vec", np.zeros(DIMENSION, np.float32), k=50, columns=("id",)))

    assert sorted(found.column("id").to_pylist()) == [*range(5), *([102] if place != "base" else [])]


@pytest.mark.parametrize(
    "query",
    [
        VectorQuery("kind", np.zeros(8)),
        VectorQuery("nothing", np.zeros(8)),
        VectorQuery("vec", np.zeros(3)),
        VectorQuery("vec", np.zeros(8), k=0),
    ],
)
def test_query_that_does_not_fit_is_refused(tmp_path: Path, query: VectorQuery) -> None:
    uri = str(tmp_path / "t")
    _table(uri, 4, np.random.default_rng(1), indexed=False)

    with pytest.raises(InvalidRequestError):
        Table.open(uri).vector_search(query)
