"""A merge stays inside the memory it was given, however much there is to merge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.row_changes import write_rows
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.work import write_winners
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import MergeSettings, Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA

WORKER = Path(__file__).with_name("memory_worker.py")
DIMENSION = 512
GENERATION_ROWS = 64 * 1024
GENERATIONS = 18
LIMIT_MIB = 1536

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def rows(ids: np.ndarray, value: float) -> pa.Table:
    values = np.full(len(ids) * DIMENSION, value, dtype=np.float32)
    values[::DIMENSION] = np.arange(len(ids))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSION)
    return pa.Table.from_arrays([pa.array(ids), vectors], schema=SCHEMA)


def make_generations(uri: str) -> int:
    """Write more than 2 GiB of generations over a base of one generation's size; return the live rows."""
    settings = Settings(
        storage=StorageSettings(fsync=False), writer=WriterSettings(max_memtable_bytes=2**40, max_memtable_rows=10**7)
    )
    lance.write_dataset(rows(np.arange(GENERATION_ROWS), -1.0), uri)
    table = BaseTable.open(uri, settings=settings)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 1)])
    half = GENERATION_ROWS // 2
    with TableWriter.open(table) as writer:
        for number in range(GENERATIONS):
            for start in range(0, GENERATION_ROWS, 8192):
                ids = np.arange(number * half + start, number * half + start + 8192)
                writer.put(rows(ids, float(number)))
            writer.flush()
    return (GENERATIONS + 1) * half


def test_wide_rows_beside_many_narrow_ones_are_read_a_few_at_once(tmp_path, monkeypatch):
    """The mean of the region said that all wide rows fit into a batch."""
    uri, kind = str(tmp_path / "t"), pa.large_binary()
    batch_bytes, wide_bytes = 256 * 1024, 64 * 1024
    table = Table.create(uri, pa.schema([pa.field("id", pa.int64(), nullable=False), ("data", kind)]), key="id")
    with table.writer() as writer:
        writer.put(pa.table({"id": pa.array(range(50_000)), "data": pa.array([b"x"] * 50_000, kind)}))
        writer.flush()
        for first in range(50_000, 50_064, 16):
            writer.put(
                pa.table({"id": pa.array(range(first, first + 16)), "data": pa.array([bytes(wide_bytes)] * 16, kind)})
            )
            writer.flush()
    sizes = []

    def measured(dataset: lance.LanceDataset, rows: pa.RecordBatchReader) -> tuple[str, ...]:
        batches = list(rows)
        sizes.extend(batch.nbytes for batch in batches)
        return write_rows(dataset, pa.RecordBatchReader.from_batches(rows.schema, batches))

    monkeypatch.setattr(write_winners, "write_rows", measured)
    settings = Settings(merge=MergeSettings(batch_bytes=batch_bytes, join_max_bytes=0))
    report = Table.open(uri, settings=settings).run(MergeRequest())

    assert sum(commit.upserts for commit in report.commits) == Table.open(uri).count() == 50_064
    assert max(sizes) <= batch_bytes + wide_bytes


@pytest.mark.slow
def test_one_commit_of_more_than_two_gigabytes_stays_under_the_limit(tmp_path):
    uri = str(tmp_path / "t")
    live = make_generations(uri)
    merged_bytes = GENERATIONS * GENERATION_ROWS * (DIMENSION * 4 + 8)
    assert merged_bytes > 2 * 1024**3

    # With the C library's default of eight arenas per core, freed memory counts as used for long.
    done = subprocess.run(
        [sys.executable, str(WORKER), uri, "4096"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )

    outcome, commits, written, peak_mib, leftovers = done.stdout.split()
    assert (outcome, commits, int(written), leftovers) == ("done", "1", live, "()")
    assert int(peak_mib) < LIMIT_MIB
    dataset = lance.dataset(uri)
    assert dataset.count_rows() == live
    newest = dataset.to_table(filter=f"id = {live - 1}").column("vector")[0].as_py()
    assert newest[1] == GENERATIONS - 1
