"""The whole loop, as each competitor does it; run in a process of its own by ``bench.isolated``.

Every function applies the same batches to a copy of the same base, and returns the seconds until all
batches are durable (as far as it makes them so), until all are in the base table, and the batches done.
"""

from __future__ import annotations

import logging
import os
import time

os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

import lance
import pyarrow as pa
from lance.dataset import MergeInsertBuilder
from lance.mem_wal import CompactedSsTable

from bench.tables import with_regions
from memwal_core.format.paths import generation_path
from memwal_core.ids import IdSource
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter

logging.basicConfig(level=logging.ERROR)

Values = dict[str, float]

_BYTES = 2 * 1024**3


def read_batches(path: str, count: int) -> list[pa.Table]:
    """Return the first batches of the file."""
    with pa.memory_map(path) as source:
        read = pa.ipc.open_file(source)
        return [pa.Table.from_batches([read.get_batch(number)]) for number in range(count)]


def _upsert(dataset: lance.LanceDataset) -> MergeInsertBuilder:
    return dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().use_index(False)


def merge_insert(uri: str, batches: str, count: int, memtable_rows: int) -> Values:
    """Commit one merge_insert per batch."""
    del memtable_rows
    given = read_batches(batches, count)
    dataset = lance.dataset(uri)
    start = time.perf_counter()
    for batch in given:
        _upsert(dataset).execute(batch)
    done = time.perf_counter() - start
    return {"durable": done, "seconds": done}


def pylance_writer(uri: str, batches: str, count: int, memtable_rows: int) -> Values:
    """Put through pylance's writer, then commit one marked merge_insert per generation."""
    given = read_batches(batches, count)
    dataset = lance.dataset(uri)
    dataset.initialize_mem_wal(unsharded=True)
    region_id = IdSource().region_id()
    start = time.perf_counter()
    with dataset.mem_wal_writer(
        str(region_id),
        durable_write=True,
        max_wal_flush_interval_ms=1,
        max_memtable_rows=memtable_rows,
        max_memtable_size=_BYTES,
        max_unflushed_memtable_bytes=2 * _BYTES,
    ) as writer:
        for batch in given:
            writer.put(batch)
        durable = time.perf_counter() - start
    (region,) = Table.open(uri).opened.manifests.load_many([region_id])
    for flushed in region.flushed_generations:
        read = lance.dataset(os.path.join(uri, generation_path(region_id, flushed.path)))
        rows = read.to_table(columns=given[0].schema.names)
        mark = CompactedSsTable(str(region_id), flushed.generation)
        _upsert(lance.dataset(uri)).mark_sstables_as_compacted([mark]).execute(rows)
    return {
        "durable": durable,
        "seconds": time.perf_counter() - start,
        "generations": float(len(region.flushed_generations)),
    }


def memwal(uri: str, batches: str, count: int, memtable_rows: int) -> Values:
    """Put through our writer and merge in this process."""
    start, durable = write_batches(uri, batches, count, memtable_rows)
    report = Table.open(uri).run(MergeRequest())
    return {
        "durable": durable,
        "seconds": time.perf_counter() - start,
        "generations": float(report.generations),
    }


def write_batches(uri: str, batches: str, count: int, memtable_rows: int) -> tuple[float, float]:
    """Put all batches and flush; return when it began and the seconds until all batches were durable."""
    given = read_batches(batches, count)
    settings = Settings(
        storage=StorageSettings(fsync=True),
        writer=WriterSettings(max_memtable_rows=memtable_rows, max_memtable_bytes=_BYTES),
    )
    table = with_regions(uri, 1, settings)
    start = time.perf_counter()
    with TableWriter.open(table) as writer:
        for batch in given:
            writer.put(batch)
        durable = time.perf_counter() - start
        writer.flush()
    return start, durable
