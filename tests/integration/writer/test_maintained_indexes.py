"""Indexes of flushed MemTables: there before the generation is, and with the base table's models."""

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.base_table.indexes.segments import segment_build
from memwal_core.format.paths import generation_path
from memwal_core.region import RegionStatus
from memwal_core.writer import RegionWriter
from testkit.tables.regions import create_region, writer_settings

SETTINGS = writer_settings()
ROWS, DIMENSION = 512, 16
KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("text", pa.string()),
        pa.field("kind", pa.int32()),
        pa.field("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def _rows(first: int, count: int, vectors: np.ndarray | None = None) -> pa.Table:
    drawn = np.random.default_rng(first).random((count, DIMENSION), np.float32) if vectors is None else vectors
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "text": [f"the quick foxes jumped {i % 7}" for i in range(count)],
            "kind": pa.array(np.arange(count) % 3, pa.int32()),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(drawn.ravel()), DIMENSION),
        },
        schema=SCHEMA,
    )


def _table(path: Path, maintained: list[str], kind: str = "IVF_PQ", metric: str = "l2") -> BaseTable:
    dataset = lance.write_dataset(_rows(0, ROWS), str(path / "t.lance"))
    dataset.create_index("vec", kind, name="vec_idx", metric=metric, num_partitions=4, num_sub_vectors=4)
    dataset.create_scalar_index("kind", "BITMAP", name="kind_idx")
    dataset.create_scalar_index(
        "text", "INVERTED", name="text_idx", stem=True, remove_stop_words=True, with_position=True
    )
    table = BaseTable.open(dataset.uri, settings=SETTINGS)
    table.create_mem_wal_index((), maintained)
    return table


def _flushed(table: BaseTable, rows: pa.Table, status: RegionStatus = RegionStatus.SEALED) -> lance.LanceDataset:
    region_id = create_region(table, status)
    writer = RegionWriter.open(table.with_settings(SETTINGS), region_id)
    writer.put(rows)
    return lance.dataset(table.store.uri_of(generation_path(region_id, writer.flush().path)))


def _built(dataset: lance.LanceDataset) -> dict[str, str]:
    return {index.name: index.index_type for index in dataset.describe_indices()}


def _distances(dataset: lance.LanceDataset, query: np.ndarray, count: int) -> np.ndarray:
    nearest = {"column": "vec", "q": query, "k": count, "nprobes": 4}
    return np.sort(dataset.to_table(columns=["_distance"], nearest=nearest).column("_distance").to_numpy())


@pytest.mark.req("WRT-48", "WRT-53", "FMT-17", "IDX-04")
@pytest.mark.parametrize("status", RegionStatus)
def test_only_the_maintained_indexes_are_built_under_the_base_names(tmp_path: Path, status: RegionStatus) -> None:
    table = _table(tmp_path, ["kind_idx"])
    flushed = _flushed(table, _rows(0, 50), status)
    assert _built(flushed) == {"kind_idx": "Bitmap"}
    assert "ScalarIndexQuery" in flushed.scanner(filter="kind = 1").explain_plan()
    assert flushed.count_rows("kind = 1") == 17


@pytest.mark.req("WRT-50", "IDX-36", "IDX-38")
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_equal_vectors_have_equal_distances_in_base_and_generation(tmp_path: Path, metric: str) -> None:
    table = _table(tmp_path, ["vec_idx"], metric=metric)
    base = table.dataset()
    vectors = base.to_table(columns=["vec"]).column("vec").combine_chunks().flatten().to_numpy().reshape(ROWS, -1)
    flushed = _flushed(table, _rows(0, ROWS, vectors))
    assert _built(flushed)["vec_idx"] == "IVF_PQ"
    query = np.random.default_rng(9).random(DIMENSION, np.float32)
    assert np.array_equal(_distances(flushed, query, ROWS), _distances(base, query, ROWS))
    centroids = [dataset.get_ivf_model("vec_idx").centroids.flatten() for dataset in (base, flushed)]
    assert centroids[0].equals(centroids[1])


@pytest.mark.req("IDX-38", "WRT-50")
@pytest.mark.parametrize(
    ("kind", "built"), [("IVF_FLAT", "IVF_FLAT"), ("IVF_HNSW_PQ", "IVF_HNSW_PQ"), ("IVF_SQ", "IVF_FLAT")]
)
def test_other_vector_indexes_keep_their_centroids_and_lose_only_scalar_quantizers(
    tmp_path: Path, kind: str, built: str
) -> None:
    table = _table(tmp_path, ["vec_idx"], kind)
    flushed = _flushed(table, _rows(1000, 40))
    assert _built(flushed) == {"vec_idx": built}
    models = [dataset.get_ivf_model("vec_idx").centroids.flatten() for dataset in (table.dataset(), flushed)]
    assert np.allclose(*(model.to_numpy() for model in models))


@pytest.mark.req("WRT-51", "WRT-52")
def test_text_indexes_inherit_the_tokenizer_and_count_their_own_corpus(tmp_path: Path) -> None:
    table = _table(tmp_path, ["text_idx"])
    flushed = _flushed(table, _rows(0, 30))
    for query, hits in (("fox", 30), ("FOXES", 30), ("jumping", 30), ("the", 0)):
        found = flushed.to_table(full_text_query=query)
        assert found.num_rows == hits, query
    statistics = flushed.stats.index_stats("text_idx")["indices"][0]
    assert statistics["num_docs"] == 30
    wanted, got = (
        next(index.details for index in dataset.describe_indices() if index.name == "text_idx")
        for dataset in (table.dataset(), flushed)
    )
    assert got == wanted


@pytest.mark.req("WRT-67", "WRT-59")
def test_index_hits_return_the_newest_rows_of_a_generation_with_several_entries(tmp_path: Path) -> None:
    table = _table(tmp_path, ["kind_idx"])
    region_id = create_region(table)
    writer = RegionWriter.open(table.with_settings(writer_settings(durable_write=False)), region_id)
    for first in (0, 10, 5):
        writer.put(_rows(first, 10))
    writer.sync()
    writer.put(_rows(12, 3))
    flushed = lance.dataset(table.store.uri_of(generation_path(region_id, writer.flush().path)))
    rows = flushed.to_table(columns=["id", "kind"])
    for kind in range(3):
        hits = flushed.to_table(columns=["id"], filter=f"kind = {kind}").column("id").to_pylist()
        expected = [
            i for i, k in zip(rows.column("id").to_pylist(), rows.column("kind").to_pylist(), strict=True) if k == kind
        ]
        assert sorted(hits) == sorted(expected)


def test_a_generation_of_tombstones_alone_needs_no_index(tmp_path: Path) -> None:
    table = _table(tmp_path, ["vec_idx", "text_idx", "kind_idx"])
    region_id = create_region(table)
    writer = RegionWriter.open(table.with_settings(SETTINGS), region_id)
    writer.delete(pa.table({"id": [1, 2]}))
    flushed = lance.dataset(table.store.uri_of(generation_path(region_id, writer.flush().path)))
    assert _built(flushed) == {}
    assert flushed.count_rows() == 2


@pytest.mark.req("WRT-48")
def test_maintain_all_indexes_builds_all_but_the_primary_keys(tmp_path: Path) -> None:
    dataset = lance.write_dataset(_rows(0, ROWS), str(tmp_path / "t.lance"))
    dataset.create_scalar_index("id", "BTREE", name="key_idx")
    dataset.create_scalar_index("kind", "BITMAP", name="kind_idx")
    dataset.initialize_mem_wal(maintained_indexes=None)
    table = BaseTable.open(dataset.uri, settings=SETTINGS)
    assert table.state().details.maintained_indexes == ()
    assert _built(_flushed(table, _rows(0, 10))) == {"kind_idx": "Bitmap"}


@pytest.mark.parametrize("kind", ["IVF_FLAT", "BTREE", "INVERTED"])
def test_index_over_a_field_inside_of_a_column_keeps_no_memtable_from_its_flush(tmp_path: Path, kind: str) -> None:
    inside = {"vec": SCHEMA.field("vec").type, "kind": pa.int32(), "text": pa.string()}
    schema = pa.schema([SCHEMA.field("id"), pa.field("in", pa.struct(list(inside.items())))])

    def rows(first: int, count: int) -> pa.Table:
        flat = _rows(first, count)
        values = [flat.column(name).combine_chunks() for name in inside]
        return pa.table(
            [flat.column("id"), pa.StructArray.from_arrays(values, fields=list(schema.field("in").type))], schema=schema
        )

    dataset = lance.write_dataset(rows(0, ROWS), str(tmp_path / "t.lance"))
    if kind == "IVF_FLAT":
        dataset.create_index("in.vec", kind, name="idx", num_partitions=4)
    else:
        dataset.create_scalar_index("in.kind" if kind == "BTREE" else "in.text", kind, name="idx")
    table = BaseTable.open(dataset.uri, settings=SETTINGS)
    table.create_mem_wal_index((), ["idx"])

    flushed = _flushed(table, rows(1000, 5))

    assert flushed.count_rows() == 5
    assert _built(flushed) == {}
    assert segment_build(table, table.state().version, "idx", dataset.describe_indices()[0].index_type) is None
