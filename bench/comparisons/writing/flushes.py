"""Flushing a MemTable: how long it takes, and how many bytes a row costs until it is merged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.harness import PROCESSOR, SECONDS, Arm, Case, Comparison, Measure, Sample, Work, with_processor_time
from bench.tables import UNSYNCED, require_equal, rows, with_regions
from memwal_core.clock import SystemClock
from memwal_core.format.paths import region_directory
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.settings import Settings, StorageSettings
from memwal_core.writer import RegionWriter

FLOATS = 128
BATCHES = 10

_SEED = 71
_MANY_BYTES = 2 * 1024**3
AMPLIFICATION = Measure("bytes written per byte of rows", "bytes")


def _batches(count: int) -> list[pa.Table]:
    rng = np.random.default_rng(_SEED)
    keys = rng.permutation(count)
    return [rows(part, rng, floats=FLOATS) for part in np.array_split(keys, BATCHES)]


def _sample(started: float, region: Path, case: Case) -> Sample:
    elapsed = SystemClock().monotonic() - started
    files = {found.st_ino: found.st_size for path in region.rglob("*") if path.is_file() for found in (path.stat(),)}
    written = sum(files.values())  # A link is no second file.
    return {SECONDS.name: elapsed, AMPLIFICATION.name: written / sum(batch.nbytes for batch in case.data)}


def _generation(region: Path) -> lance.LanceDataset:
    (directory,) = region.glob("*_gen_1")
    return lance.dataset(str(directory))


@contextmanager
def pylance_flush(case: Case, directory: Path) -> Iterator[Work]:
    """Close pylance's writer, which flushes its MemTable; the rows are in its WAL already."""
    dataset = lance.write_dataset(case.data[0].slice(0, 1), directory / "table")
    dataset.initialize_mem_wal(unsharded=True)
    region_id = IdSource().region_id()
    region = directory / "table" / region_directory(region_id)
    writer = dataset.mem_wal_writer(
        str(region_id),
        durable_write=True,
        max_wal_flush_interval_ms=1,
        max_memtable_rows=2 * case.operations + sum(map(len, case.data)),
        max_memtable_size=_MANY_BYTES,
        max_unflushed_memtable_bytes=2 * _MANY_BYTES,
    )
    for batch in case.data:
        writer.put(batch)

    def work() -> Sample:
        started = SystemClock().monotonic()
        writer.close()
        return _sample(started, region, case)

    yield with_processor_time(work, case.operations)
    require_equal(_generation(region).count_rows(), sum(map(len, case.data)))


@contextmanager
def region_flush(
    case: Case, directory: Path, *, fsync: bool, status: RegionStatus = RegionStatus.SEALED
) -> Iterator[Work]:
    """Flush our MemTable; the rows are in the WAL already."""
    settings = Settings(storage=StorageSettings(fsync=fsync), writer=UNSYNCED.writer)
    lance.write_dataset(case.data[0].slice(0, 1), directory / "table")
    table = with_regions(str(directory / "table"), 1, settings)
    ids = IdSource()
    region_id = ids.region_id()
    ManifestStore(table.store, ids, settings=settings.storage).create(region_id, status=status)
    region = directory / "table" / region_directory(region_id)
    with RegionWriter.open(table, region_id) as writer:
        for batch in case.data:
            writer.put(batch)

        def work() -> Sample:
            started = SystemClock().monotonic()
            writer.flush()
            return _sample(started, region, case)

        yield with_processor_time(work, case.operations)
        require_equal(_generation(region).count_rows(), sum(map(len, case.data)))


def _cases(full: bool) -> list[Case]:
    return [Case(f"{count:,} rows", 1, _batches(count)) for count in ((5_000, 50_000, 200_000) if full else (50_000,))]


FLUSHES = Comparison(
    name="flushes",
    question=f"turn a MemTable of {BATCHES} WAL entries into a flushed MemTable: int64 key, text, {FLOATS} floats",
    operation="flush",
    arms=(
        Arm("pylance", "closing mem_wal_writer, which copies the rows; does not sync", pylance_flush),
        Arm("memwal", "RegionWriter.flush with all key filters, fsync off", partial(region_flush, fsync=False)),
        Arm("memwal+fsync", "the same as it is by default: synced", partial(region_flush, fsync=True)),
        Arm(
            "memwal-arrow",
            "a region of the arrow codec, which copies the rows, too; fsync off",
            partial(region_flush, fsync=False, status=RegionStatus.ACTIVE),
        ),
    ),
    cases=_cases,
    also=(AMPLIFICATION, PROCESSOR),
)
