"""What a lookup reads grows with its keys, not with the rows of the table."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from memwal_core.reader.rows.by_key import rows_with_keys
from memwal_core.reader.rows.places import index_names_rows
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.settings import ReadSettings, Settings
from memwal_core.table import Table
from testkit.tables.people import PRIMARY_KEY_METADATA, people

ROWS = 100_000
FRAGMENTS = 10
FLOATS = 64
KEY_COLUMN_BYTES = 264_000
"""Numbers below 100,000 are stored in 17 bits, and every fragment has some metadata."""

BYTES_AROUND_A_ROW = 2_048
"""Lance joins reads that lie close together; a row itself has 256 bytes."""


@dataclass(frozen=True, slots=True)
class _Cost:
    requests: int
    bytes_read: int


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of one table per index on the key; of ``partial``, a tenth of the rows is not indexed."""
    rng = np.random.default_rng(5)
    key = pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA)
    schema = pa.schema([key, pa.field("vec", pa.list_(pa.float32(), FLOATS))])
    floats = pa.array(rng.random(ROWS * FLOATS, dtype=np.float32))
    rows = pa.Table.from_arrays(
        [pa.array(rng.permutation(ROWS).astype(np.int64)), pa.FixedSizeListArray.from_arrays(floats, FLOATS)],
        schema=schema,
    )
    root = tmp_path_factory.mktemp("lookups")
    indexed = ROWS - ROWS // FRAGMENTS
    for name in ("none", "BTREE", "partial"):
        uri = str(root / name)
        lance.write_dataset(rows.slice(0, indexed), uri, max_rows_per_file=ROWS // FRAGMENTS)
        if name != "none":
            lance.dataset(uri).create_scalar_index("id", "BTREE")
        lance.write_dataset(rows.slice(indexed), uri, mode="append")
        if name == "BTREE":
            lance.dataset(uri).optimize.optimize_indices()
    return root


def _wanted(keys: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(keys).choice(ROWS, keys, replace=False).astype(np.int64)


def _cost(uri: Path, keys: int) -> _Cost:
    dataset = lance.dataset(str(uri))
    wanted = _wanted(keys)
    dataset.io_stats_incremental()
    found = rows_with_keys(dataset, pa.table({"id": wanted}), ["id"], ["id", "vec"])
    assert sorted(found.column("id").to_pylist()) == sorted(wanted.tolist())
    stats = dataset.io_stats_incremental()
    return _Cost(stats.read_iops, stats.read_bytes)


@pytest.mark.parametrize("keys", [1, 100, 1000, 1001, 10_000])
@pytest.mark.parametrize("index", ["none", "BTREE", "partial"])
def test_p4_a_lookup_reads_the_key_column_and_the_rows_that_it_returns(tables: Path, index: str, keys: int) -> None:
    """From 1,001 keys on, and wherever the index lacked a fragment, all columns of all rows were read."""
    cost = _cost(tables / index, keys)

    assert cost.requests <= 3 * FRAGMENTS + keys
    assert cost.bytes_read <= KEY_COLUMN_BYTES + keys * BYTES_AROUND_A_ROW


@pytest.mark.parametrize(("index", "requests", "bytes_read"), [("BTREE", 10, 40_000), ("partial", 13, 66_000)])
def test_p4_a_key_is_found_by_the_index(tables: Path, index: str, requests: int, bytes_read: int) -> None:
    """Where the index lacks a fragment, its key column is read, and nothing else."""
    cost = _cost(tables / index, 1)

    assert cost.requests <= requests
    assert cost.bytes_read <= bytes_read


def test_p4_a_key_of_a_complete_index_is_found_and_read_in_one_pass(tables: Path) -> None:
    """A second pass for the other columns took as long as the first."""
    uri = tables / "BTREE"
    by_lance = lance.dataset(str(uri))
    by_lance.io_stats_incremental()
    by_lance.to_table(columns=["id", "vec"], filter=f"id IN ({_wanted(1)[0]})")

    assert _cost(uri, 1).requests == by_lance.io_stats_incremental().read_iops


def test_an_index_that_was_found_incomplete_is_asked_anew_of_another_version(tables: Path, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    shutil.copytree(tables / "partial", uri)
    dataset = lance.dataset(uri)
    wanted = pa.table({"id": [1]})
    before = index_names_rows(dataset, wanted, ["id"])
    dataset.optimize.optimize_indices()
    after = index_names_rows(dataset, wanted, ["id"])
    lance.write_dataset(lance.dataset(uri).to_table(limit=1), uri, mode="append")

    assert (before, after) == (False, True)
    assert not index_names_rows(lance.dataset(uri), wanted, ["id"])


def test_an_index_names_no_rows_exactly_if_it_is_of_another_kind_or_of_a_part_of_the_key(
    tables: Path, tmp_path: Path
) -> None:
    uri = str(tmp_path / "table")
    shutil.copytree(tables / "BTREE", uri)
    composite = lance.dataset(uri).to_table(columns=["id", "vec"], limit=1)

    assert index_names_rows(lance.dataset(uri), composite.select(["id"]), ["id"])
    assert not index_names_rows(lance.dataset(uri), composite, ["id", "vec"])
    lance.dataset(uri).create_scalar_index("id", "ZONEMAP", name="zones")
    assert not index_names_rows(lance.dataset(uri), composite.select(["id"]), ["id"])


def _enabled(tables: Path, tmp_path: Path, read: ReadSettings) -> Table:
    uri = str(tmp_path / "table")
    shutil.copytree(tables / "BTREE", uri)
    return Table.open(uri, settings=Settings(read=read))


def test_a_view_reads_from_the_version_that_was_opened_to_look_where_rows_are(tables: Path, tmp_path: Path) -> None:
    view = _enabled(tables, tmp_path, ReadSettings()).view()

    assert view._opened.base is view._opened.survey.state.opened


@pytest.mark.parametrize(("cache_bytes", "is_kept"), [(ReadSettings().index_cache_bytes, True), (1 << 20, False)])
def test_an_index_is_read_once_if_the_setting_lets_it_be_kept(
    tables: Path, tmp_path: Path, cache_bytes: int, *, is_kept: bool
) -> None:
    """The BTREE has 1.2 MB on disk, and more in memory."""
    view = _enabled(tables, tmp_path, ReadSettings(index_cache_bytes=cache_bytes)).view()
    keys, base = pa.table({"id": _wanted(50)}), view._opened.base
    read = []
    for _ in range(2):
        base.io_stats_incremental()
        assert view.lookup(keys).num_rows == 50
        read.append(base.io_stats_incremental().read_bytes)

    assert (read[1] < read[0] / 4) is is_kept


@pytest.mark.parametrize("index", ["", "BTREE"])
def test_no_read_makes_an_object_of_every_fragment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Literal["", "BTREE"]
) -> None:
    """With 3,000 fragments that took a hundred times as long as a scan of one row."""
    lance.write_dataset(people(*range(10)), tmp_path / "t", max_rows_per_file=1)
    if index:
        lance.dataset(tmp_path / "t").create_scalar_index("id", index)
    table = Table.open(tmp_path / "t")

    def refused(_dataset: lance.LanceDataset) -> None:
        raise AssertionError("asked for all fragments")

    monkeypatch.setattr(lance.LanceDataset, "get_fragments", refused)

    assert table.lookup(pa.table({"id": [3, 4]})).num_rows == 2
    assert table.to_arrow(ScanRequest(limit=1)).num_rows == 1
