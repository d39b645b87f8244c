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

from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.ids import RegionId
from memwal_core.reader import Consistency, ReadPlan
from memwal_core.reader.gap import plan_gap
from memwal_core.reader.vector import VectorQuery, VectorSearch
from memwal_core.reader.view import TableView
from memwal_core.region_spec import bucket_spec
from memwal_core.table import MemWalTable
from memwal_core.testing.tables import PRIMARY_KEY_METADATA
from memwal_core.writer.table_writer import TableWriter

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


def _merged_with_gap(uri: str, rng: np.random.Generator) -> RegionId:
    """Generations 1 to 4 merged, the base index covers none of them; 5 flushed. Flushed MemTables are indexed."""
    lance.write_dataset(_rows(list(range(100)), rng), uri)
    _index(uri)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 1)])
    with TableWriter.open(base) as writer:
        for number in range(1, 6):
            writer.put(_rows([*range(number * 10, number * 10 + 15), 1000 + number], rng))
            writer.flush()
            if number == 4:
                TableAdmin.open(uri).merge(MergeRequest())
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
    plan = _plan(MemWalTable.open(uri).view(), {"ivf": 3, "fts": 4})

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
    plan = _plan(MemWalTable.open(uri).view(), {"ivf": 2})
    gap = plan_gap(plan, "ivf", lambda source: source.generation != 3)

    assert gap.is_empty
    assert gap.uncovered == (region,)


def _assert_exact(view: TableView, rng: np.random.Generator) -> None:
    rows = view.scan().to_arrow()
    ids = np.array(rows.column("id").to_pylist())
    vectors = np.array(rows.column("vec").to_pylist(), dtype=np.float32)
    for _ in range(5):
        query = rng.normal(size=DIMENSION).astype(np.float32)
        found = view.vector_search(VectorQuery("vec", query, k=10, columns=("id",)))
        expected = ids[np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")[:10]]
        assert found.column("id").to_pylist() == expected.tolist()


@pytest.mark.req("RD-28", "RD-29", "RD-30", "RD-32", "RD-33")
@pytest.mark.parametrize("change", ["none", "direct append", "direct delete", "collected"])
def test_search_over_a_gap_is_exact(tmp_path: Path, change: str) -> None:
    rng = np.random.default_rng(17)
    uri = str(tmp_path / "t")
    _merged_with_gap(uri, rng)
    match change:
        case "direct append":
            lance.write_dataset(_rows(list(range(5000, 5040)), rng), uri, mode="append")
        case "direct delete":
            lance.dataset(uri).delete("id >= 20 AND id < 30")
        case "collected":
            rmtree(next(Path(uri).glob("_mem_wal/*/*_gen_2")))
    view = MemWalTable.open(uri).view(Consistency.LATEST)
    search = VectorSearch(view._opened, VectorQuery("vec", np.zeros(DIMENSION, np.float32)))
    gap, bridged = search.gap(), search._gap()

    assert gap is not None
    assert gap.is_empty == (bridged is None) == (change == "collected")
    assert bridged is None or bool(bridged.scanned) == (change == "direct append")
    _assert_exact(view, rng)
