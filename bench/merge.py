"""Merging flushed MemTables into the base table: our job against Lance's merge-insert, and our strategies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import CompactedSsTable

from bench.harness import Arm, Case, Comparison, Work
from memwal_core.admin import TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.region_spec import bucket_spec
from memwal_core.settings import MergeSettings, Settings, StorageSettings, WriterSettings
from memwal_core.storage.layout import generation_path
from memwal_core.writer import TableWriter

DIMENSION = 64
BASE_ROWS = 200_000
LARGE_BASE_ROWS = 1_000_000
GENERATIONS = 16
GENERATION_ROWS = 10_000

_SEED = 17
_BIG = 2**40
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


@dataclass(frozen=True, slots=True)
class MergeData:
    """What a trial merges.

    Attributes:
        base: The table before.
        generations: Rows put before each flush, half of them updates.
        deleted: Keys deleted before each flush; empty tables without tombstones.
        keys: Keys of the table afterwards.
    """

    base: pa.Table
    generations: tuple[pa.Table, ...]
    deleted: tuple[pa.Table, ...]
    keys: int


def merge_data(generations: int, generation_rows: int, *, tombstones: int, base_rows: int = BASE_ROWS) -> MergeData:
    """Make the data of a case, always the same for the same arguments."""
    rng = np.random.default_rng(_SEED)
    alive = set(range(base_rows))
    made, deleted = [], []
    for number in range(generations):
        old = rng.choice(base_rows, generation_rows // 2, replace=False)
        first_new = base_rows + number * generation_rows
        new = np.arange(first_new, first_new + generation_rows - len(old))
        gone = rng.choice(base_rows, tombstones, replace=False)
        made.append(_rows(rng.permutation(np.concatenate([old, new])), rng))
        deleted.append(pa.table({"id": gone}, schema=pa.schema([SCHEMA.field("id")])))
        alive = (alive | set(old.tolist()) | set(new.tolist())) - set(gone.tolist())
    return MergeData(_rows(np.arange(base_rows), rng), tuple(made), tuple(deleted), len(alive))


def _rows(keys: np.ndarray, rng: np.random.Generator) -> pa.Table:
    values = pa.array(rng.random(len(keys) * DIMENSION, dtype=np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(values, DIMENSION)
    return pa.Table.from_arrays([pa.array(keys, pa.int64()), vectors], schema=SCHEMA)


def _flushed(case: Case, uri: str) -> BaseTable:
    """Make a table whose one region has the generations flushed."""
    data: MergeData = case.data
    settings = Settings(
        storage=StorageSettings(fsync=False),
        writer=WriterSettings(max_memtable_bytes=_BIG, max_memtable_rows=_BIG),
    )
    lance.write_dataset(data.base, uri)
    table = BaseTable.open(uri, settings=settings)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 1)])
    with TableWriter.open(table, settings=settings) as writer:
        for rows, deleted in zip(data.generations, data.deleted, strict=True):
            writer.put(rows)
            if deleted.num_rows:
                writer.delete(deleted)
            writer.flush()
    return table


@contextmanager
def merge_insert_per_generation(case: Case, directory: Path) -> Iterator[Work]:
    """Merge each generation with one marked merge_insert, in its fastest form."""
    uri = str(directory / "table")
    table = _flushed(case, uri)
    (region,) = TableAdmin(table, table.settings, table.clock, table.rng).manifests.load_many(_regions(table))

    def work() -> None:
        for flushed in region.flushed_generations:
            address = os.path.join(uri, generation_path(region.region_id, flushed.path))
            rows = lance.dataset(address).to_table(columns=SCHEMA.names)
            merge = lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            mark = CompactedSsTable(str(region.region_id), flushed.generation)
            merge.use_index(False).mark_sstables_as_compacted([mark]).execute(rows)

    yield work
    _require(lance.dataset(uri).count_rows(), case.data.keys)


@contextmanager
def merge_job(case: Case, directory: Path, *, strategy: str) -> Iterator[Work]:
    """Merge with our job, from opening the table to its report."""
    uri = str(directory / "table")
    _flushed(case, uri)
    settings = Settings(storage=StorageSettings(fsync=False), merge=MergeSettings(strategy=strategy))

    def work() -> None:
        report = TableAdmin.open(uri, settings=settings).merge()
        _require(report.generations, len(case.data.generations))

    yield work
    _require(lance.dataset(uri).count_rows(), case.data.keys)


def _regions(table: BaseTable) -> list[object]:
    return list(TableAdmin(table, table.settings, table.clock, table.rng).manifests.region_ids())


def _require(found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"an arm did not do its work: found {found}, expected {expected}")


def _generation_cases(full: bool) -> Sequence[Case]:
    counts = (4, GENERATIONS, 64) if full else (GENERATIONS,)
    return [
        Case(
            f"{count} generations into {base_rows:,}",
            count,
            merge_data(count, GENERATION_ROWS, tombstones=0, base_rows=base_rows),
        )
        for base_rows in (BASE_ROWS, LARGE_BASE_ROWS)
        for count in counts
    ]


def _strategy_cases(full: bool) -> Sequence[Case]:
    rows = 5 * GENERATION_ROWS if full else GENERATION_ROWS
    return [
        Case(name, GENERATIONS, merge_data(GENERATIONS, rows, tombstones=tombstones))
        for name, tombstones in (("upserts", 0), ("with 1,000 tombstones each", 1_000))
    ]


MERGES = Comparison(
    name="merge",
    question=f"merge generations of {GENERATION_ROWS:,} rows x {DIMENSION} floats, half of them updates",
    operation="generation",
    arms=(
        Arm(
            "merge_insert",
            "one marked merge_insert per generation, use_index(False), keys already unique",
            merge_insert_per_generation,
        ),
        Arm(
            "memwal",
            "the merge job as it is by default, table opening and plan included",
            partial(merge_job, strategy="auto"),
        ),
    ),
    cases=_generation_cases,
)

MERGE_STRATEGIES = Comparison(
    name="merge-strategies",
    question=f"both strategies of the merge job on {GENERATIONS} generations, one process",
    operation="generation",
    arms=(
        Arm(
            "native", "merge_insert; with tombstones in segments of two commits", partial(merge_job, strategy="native")
        ),
        Arm(
            "single_commit",
            "fragments and deletion vectors prepared, one strict commit",
            partial(merge_job, strategy="single_commit"),
        ),
    ),
    cases=_strategy_cases,
)
