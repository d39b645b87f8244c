"""Opening a region whose last writer crashed, and the memory of rows that wait in a MemTable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.harness import PROCESSOR, Arm, Case, Comparison, Measure, Sample, Work, with_processor_time
from bench.isolated import run_isolated
from bench.tables import UNSYNCED, MadeOnce, link_copy, require_equal, rows, with_regions
from memwal_core.base_table import BaseTable
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.writer import RegionWriter

FLOATS = 128
ROWS_PER_ENTRY = 10

_SEED = 73
_MANY_BYTES = 2 * 1024**3
_BYTES = Measure("resident bytes per Arrow byte", "bytes")
_TIMEOUT_S = 300.0


class _Crashed:
    """A table with one region whose entries nobody has flushed."""

    def __init__(self, directory: Path, *, entries: int, flushed: int, codec: str) -> None:
        rng = np.random.default_rng(_SEED)
        self.uri = directory / "table"
        batch = rows(np.arange(ROWS_PER_ENTRY), rng, floats=FLOATS)
        lance.write_dataset(batch, str(self.uri))
        table = with_regions(str(self.uri), 1)
        ids = IdSource()
        status = RegionStatus.ACTIVE if codec == "arrow" else RegionStatus.SEALED
        self.region_id: RegionId = ManifestStore(table.store, ids).create(ids.region_id(), status=status).region_id
        self.entries = entries
        writer = RegionWriter.open(table, self.region_id)
        for _ in range(flushed):
            writer.put(batch)
        if flushed:
            writer.flush()
        for _ in range(entries):
            writer.put(batch)


@contextmanager
def reopen(case: Case, directory: Path, *, codec: str) -> Iterator[Work]:
    """Claim the region with our writer, which replays its unflushed entries."""
    crashed: _Crashed = case.data[codec].get(directory)
    uri = str(link_copy(crashed.uri, directory / "table"))
    table = BaseTable.open(uri, settings=UNSYNCED)
    opened: list[RegionWriter] = []

    def work() -> None:
        opened.append(RegionWriter.open(table, crashed.region_id))

    yield with_processor_time(work, case.operations)
    require_equal(opened[0].memtable.num_rows if opened else 0, crashed.entries * ROWS_PER_ENTRY)
    opened[0].close()


@contextmanager
def reopen_with_pylance(case: Case, directory: Path) -> Iterator[Work]:
    """Claim the region with pylance's writer, which replays its unflushed entries."""
    crashed: _Crashed = case.data["arrow"].get(directory)
    dataset = lance.dataset(link_copy(crashed.uri, directory / "table"))
    opened: list[lance.mem_wal.ShardWriter] = []

    def work() -> None:
        opened.append(
            dataset.mem_wal_writer(
                str(crashed.region_id),
                max_memtable_rows=10**9,
                max_memtable_size=_MANY_BYTES,
                max_unflushed_memtable_bytes=2 * _MANY_BYTES,
            )
        )

    yield with_processor_time(work, case.operations)
    require_equal(opened[0].memtable_stats()["row_count"] if opened else 0, crashed.entries * ROWS_PER_ENTRY)


def _recoveries(full: bool) -> list[Case]:
    tails = ((1_000, 0), (10_000, 0), (1_000, 9_000)) if full else ((1_000, 0), (1_000, 9_000))
    return [
        Case(
            f"{entries:,} entries to replay, {flushed:,} flushed",
            1,
            {
                codec: MadeOnce(partial(_Crashed, entries=entries, flushed=flushed, codec=codec))
                for codec in ("lance", "arrow")
            },
        )
        for entries, flushed in tails
    ]


RECOVERY = Comparison(
    name="recovery",
    question=f"claim a region after a crash and replay its WAL: entries of {ROWS_PER_ENTRY} rows with {FLOATS} floats",
    operation="recovery",
    arms=(
        Arm("pylance", "mem_wal_writer on a region of the arrow codec", reopen_with_pylance),
        Arm("memwal", "RegionWriter.open on a region of the lance codec", partial(reopen, codec="lance")),
        Arm("memwal-arrow", "RegionWriter.open on a region of the arrow codec", partial(reopen, codec="arrow")),
    ),
    cases=_recoveries,
    rounds=3,
    also=(PROCESSOR,),
)


# -- memory -----------------------------------------------------------------------------------


def buffer_rows(uri: str, batches: int, batch_rows: int, how: str) -> dict[str, float]:
    """Put rows through a writer that never flushes, in this process, and measure what they cost.

    Args:
        uri: Where to make the table; nothing may be there.
        batches: Puts.
        batch_rows: Rows of each.
        how: ``rows`` only holds them, ``pylance`` puts them through its writer, ``memwal`` and ``memwal+index``
            through ours.

    Returns:
        Growth of the resident memory by Arrow byte of the rows.
    """
    rng = np.random.default_rng(_SEED)
    lance.write_dataset(rows(np.arange(10), rng, floats=FLOATS), uri)
    put, close = _buffering(uri, how)
    put(rows(np.arange(10), rng, floats=FLOATS))  # Threads, caches and code are not what is asked for.
    before, size = _resident(), 0
    for number in range(batches):
        batch = rows(np.arange(number * batch_rows, (number + 1) * batch_rows), rng, floats=FLOATS)
        size += batch.nbytes
        put(batch)
    del batch
    grown = _resident() - before
    close()
    return {_BYTES.name: grown / size}


def _buffering(uri: str, how: str) -> tuple[Callable[[pa.Table], object], Callable[[], object]]:
    if how == "rows":
        held: list[pa.Table] = []
        return held.append, held.clear
    if how == "pylance":
        dataset = lance.dataset(uri)
        dataset.initialize_mem_wal(unsharded=True)
        native = dataset.mem_wal_writer(
            str(IdSource().region_id()),
            max_wal_flush_interval_ms=1,
            max_memtable_rows=10**9,
            max_memtable_size=_MANY_BYTES,
            max_unflushed_memtable_bytes=2 * _MANY_BYTES,
        )
        return native.put, native.close
    settings = UNSYNCED.model_copy(
        update={"writer": UNSYNCED.writer.model_copy(update={"indexed_write": how == "memwal+index"})}
    )
    table = with_regions(uri, 1, settings)
    ids = IdSource()
    region_id = ManifestStore(table.store, ids).create(ids.region_id(), status=RegionStatus.SEALED).region_id
    writer = RegionWriter.open(table, region_id)
    return writer.put, writer.close


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def buffered(case: Case, directory: Path, *, how: str) -> Iterator[Work]:
    """Measure in a process of its own."""

    def work() -> Sample:
        batches, batch_rows = case.data
        arguments = {"uri": str(directory / "table"), "batches": batches, "batch_rows": batch_rows, "how": how}
        found = run_isolated("bench.comparisons.writing.recovery:buffer_rows", arguments, timeout_s=_TIMEOUT_S)
        return {_BYTES.name: found[_BYTES.name]}

    yield work


def _buffers(full: bool) -> list[Case]:
    return [
        Case(f"{batches} puts of {batch_rows:,} rows", 1, (batches, batch_rows))
        for batches, batch_rows in (((20, 10_000), (1_000, 100)) if full else ((20, 5_000),))
    ]


BUFFERED_MEMORY = Comparison(
    name="buffered-memory",
    question=f"memory of rows that wait in a MemTable, by byte of the rows: int64 key, text, {FLOATS} floats",
    operation="MemTable",
    arms=(
        Arm("rows", "the rows held as Arrow tables, without any writer", partial(buffered, how="rows")),
        Arm("pylance", "mem_wal_writer, rows in its WAL", partial(buffered, how="pylance")),
        Arm("memwal", "RegionWriter, rows in its WAL", partial(buffered, how="memwal")),
        Arm("memwal+index", "the same with indexed_write", partial(buffered, how="memwal+index")),
    ),
    cases=_buffers,
    measure=_BYTES,
    rounds=3,
)
