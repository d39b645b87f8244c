"""pylance's own LSM planners over our flushed MemTables give the answer of a dictionary that saw every write."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.mem_wal import LsmPointLookupPlanner, LsmScanner, LsmVectorSearchPlanner, ShardSnapshot

from memwal_core.base_table import BaseTable
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.writer import RegionWriter
from testkit.tables.native_regions import native_snapshots
from testkit.tables.people import PRIMARY_KEY_METADATA
from testkit.tables.regions import create_region, writer_settings

DIMENSION, BASE_ROWS, K = 8, 300, 10
SETTINGS = writer_settings()
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)

Model = dict[int, np.ndarray]


def rows(model: Model) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(list(model.values()))), DIMENSION)
    return pa.Table.from_arrays([pa.array(list(model), pa.int64()), vectors], schema=SCHEMA)


def drawn(rng: np.random.Generator, keys: np.ndarray) -> Model:
    return {int(key): rng.random(DIMENSION, np.float32) for key in keys}


def written(uri: str, status: RegionStatus) -> tuple[lance.LanceDataset, list[ShardSnapshot], Model]:
    """Write three generations with updates, inserts and deletes over an indexed base table."""
    rng = np.random.default_rng(14)
    model = drawn(rng, np.arange(BASE_ROWS))
    dataset = lance.write_dataset(rows(model), uri)
    # Flat and searched in all partitions: the right answer is the only answer.
    dataset.create_index("vec", "IVF_FLAT", name="vec_idx", metric="l2", num_partitions=2)
    table = BaseTable.open(uri, settings=SETTINGS)
    table.create_mem_wal_index((), ["vec_idx"])
    region = create_region(table, status)
    with RegionWriter.open(table, region) as writer:
        for _ in range(3):
            put = drawn(rng, rng.choice(BASE_ROWS + 60, 60, replace=False))
            gone = rng.choice(BASE_ROWS + 60, 25, replace=False)
            writer.put(rows(put))
            writer.delete(pa.table({"id": pa.array(gone, pa.int64())}))
            writer.flush()
            model |= put
            for key in gone.tolist():
                model.pop(key, None)
    manifest = ManifestStore(table.store, IdSource()).load(region)
    return lance.dataset(uri), native_snapshots([manifest]), model


@pytest.mark.req("WRT-48", "FMT-17", "D-20")
@pytest.mark.parametrize("status", RegionStatus)
def test_scan_lookup_and_vector_search_of_pylance_answer_like_the_model(tmp_path: Path, status: RegionStatus) -> None:
    dataset, snapshots, model = written(str(tmp_path / "t"), status)

    scanned = LsmScanner.from_snapshots(dataset, snapshots).project(["id", "vec"]).to_table().sort_by("id")
    assert scanned.select(["id", "vec"]).equals(rows(dict(sorted(model.items()))))

    lookup = LsmPointLookupPlanner(dataset, snapshots)
    for key in range(0, BASE_ROWS + 60, 7):
        found = lookup.plan_lookup(pa.array([key], pa.int64())).to_table()
        assert [row["vec"] for row in found.to_pylist()] == ([model[key].tolist()] if key in model else [])

    keys = np.array(list(model))
    vectors = np.stack(list(model.values()))
    search = LsmVectorSearchPlanner(dataset, snapshots, "vec")
    for query in np.random.default_rng(15).random((12, DIMENSION), np.float32):
        found = search.plan_search(pa.array(query), k=K, nprobes=2, columns=["id"], overfetch_factor=4.0).to_table()
        distances = ((vectors - query) ** 2).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[:K]
        assert found.column("id").to_pylist() == keys[nearest].tolist()
        np.testing.assert_allclose(found.column("_distance").to_numpy(), distances[nearest], rtol=1e-5)
