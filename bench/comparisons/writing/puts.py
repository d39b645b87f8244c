"""Durable puts of small batches, one at a time, as an application that waits for each would do them.

Also how long single ones wait on a store whose requests take their time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.harness import PROCESSOR, Arm, Case, Comparison, Measure, Sample, Work, with_processor_time
from memwal_core.base_table import BaseTable
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.storage import ObjectStore, open_store
from memwal_core.table import Table
from memwal_core.writer import RegionWriter, TableWriter
from testkit.faults.faulty_store import FaultyStore, Moment, Rule

DIMENSION = 128
BASE_ROWS = 20_000
"""Rows of the table before the puts; half of the keys of each batch are among them."""

MERGE_INSERTS = 10
"""Batches that merge_insert really commits; its time for all is extrapolated."""

_SEED = 13
_NEVER_FLUSHED_ROWS = 2_000_000
_NEVER_FLUSHED_BYTES = 2 * 1024**3

LATENCY_S = 0.03
REGIONS = 4
LATENCY_ROWS = 100
CHECKS_S = 2.0
"""Several checks of epoch and schema, and several flushes, come while a case runs."""

TAIL = Measure("p99 / p50", "p99 / p50")
_NAME = "objects/{:06}"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("body", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


@dataclass(frozen=True, slots=True)
class PutData:
    """What a trial puts.

    Attributes:
        base: The table before.
        batches: Put one after the other; no key occurs twice in a batch.
        keys: Distinct keys of the table after them.
    """

    base: pa.Table
    batches: tuple[pa.Table, ...]
    keys: int


def put_data(batch_rows: int, batches: int) -> PutData:
    """Make the data of a case, always the same for the same arguments."""
    rng = np.random.default_rng(_SEED)
    made = []
    for number in range(batches):
        old = rng.choice(BASE_ROWS, batch_rows // 2, replace=False)
        first_new = BASE_ROWS + number * batch_rows
        new = np.arange(first_new, first_new + batch_rows - len(old))
        made.append(_rows(rng.permutation(np.concatenate([old, new])), rng))
    keys = BASE_ROWS + batches * (batch_rows - batch_rows // 2)
    return PutData(_rows(np.arange(BASE_ROWS), rng), tuple(made), keys)


def _rows(keys: np.ndarray, rng: np.random.Generator) -> pa.Table:
    letters = rng.integers(ord("a"), ord("z") + 1, (len(keys), 40), dtype=np.uint8)
    body = pa.Array.from_buffers(
        pa.string(),
        len(keys),
        [None, pa.py_buffer(np.arange(0, letters.size + 1, 40, dtype=np.int32)), pa.py_buffer(letters)],
    )
    values = pa.array(rng.random((len(keys), DIMENSION), dtype=np.float32).reshape(-1))
    vector = pa.FixedSizeListArray.from_arrays(values, DIMENSION)
    return pa.Table.from_arrays([pa.array(keys, pa.int64()), body, vector], schema=SCHEMA)


PutAll = Callable[[RegionWriter | lance.mem_wal.ShardWriter, Case], None]
"""How the batches of a case reach a writer."""


def one_caller(writer: RegionWriter | lance.mem_wal.ShardWriter, case: Case) -> None:
    """Put one batch after the other."""
    for batch in case.data.batches:
        writer.put(batch)


@contextmanager
def pylance_writer(
    case: Case, directory: Path, *, put_all: PutAll = one_caller, interval_ms: int | None = 1
) -> Iterator[Work]:
    """Put through pylance's own writer, which does not sync; its wait for the next flush is ``interval_ms``."""
    dataset = lance.write_dataset(case.data.base, directory / "table")
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(
        str(IdSource().region_id()),
        durable_write=True,
        max_wal_flush_interval_ms=interval_ms,
        max_memtable_rows=_NEVER_FLUSHED_ROWS,
        max_memtable_size=_NEVER_FLUSHED_BYTES,
        max_unflushed_memtable_bytes=2 * _NEVER_FLUSHED_BYTES,
    ) as writer:
        yield with_processor_time(lambda: put_all(writer, case), case.operations)
        _require(writer.lsm_scanner().to_table().num_rows, case.data.keys)


@contextmanager
def merge_inserts(case: Case, directory: Path) -> Iterator[Work]:
    """Commit one merge_insert per batch to the table itself, in its fastest form; nothing is synced.

    Only the first batches, for it takes tens of times as long as the other ways.
    """
    dataset = lance.write_dataset(case.data.base, directory / "table")
    batches = case.data.batches[:MERGE_INSERTS]

    def work() -> float:
        began = time.perf_counter()
        for batch in batches:
            upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            upsert.use_index(False).execute(batch)
        return (time.perf_counter() - began) * case.operations / len(batches)

    yield with_processor_time(work, case.operations)
    new = sum(batch.num_rows - batch.num_rows // 2 for batch in batches)
    _require(lance.dataset(directory / "table").count_rows(), BASE_ROWS + new)


@contextmanager
def region_writer(
    case: Case,
    directory: Path,
    *,
    fsync: bool,
    put_all: PutAll = one_caller,
    status: RegionStatus = RegionStatus.SEALED,
) -> Iterator[Work]:
    """Put through our writer: synced, so that acknowledged rows survive a power failure, or as the other arms do."""
    settings = Settings(
        storage=StorageSettings(fsync=fsync),
        writer=WriterSettings(max_memtable_rows=_NEVER_FLUSHED_ROWS, max_memtable_bytes=_NEVER_FLUSHED_BYTES),
    )
    lance.write_dataset(case.data.base, directory / "table")
    table = BaseTable.open(str(directory / "table"), settings=settings)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 1)])
    ids = IdSource()
    region_id = ids.region_id()
    ManifestStore(table.store, ids, settings=settings.storage).create(region_id, status=status)
    with RegionWriter.open(table, region_id) as writer:
        yield with_processor_time(lambda: put_all(writer, case), case.operations)
    with RegionWriter.open(table, region_id) as successor:
        replayed = successor.memtable.num_rows
    _require(replayed, sum(batch.num_rows for batch in case.data.batches))


def _require(found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"an arm did not do its work: {found} rows found, {expected} expected")


def _cases(full: bool) -> list[Case]:
    counts = {1: 300, 100: 200, 1_000: 100, 10_000: 20} if full else {1: 100, 100: 50, 1_000: 20, 10_000: 5}
    return [
        Case(f"{rows:,} row{'s' if rows > 1 else ''}", batches, put_data(rows, batches))
        for rows, batches in counts.items()
    ]


PUTS = Comparison(
    name="puts",
    question="one durable put after the other: int64 key, 40 letters, 128 floats; no MemTable is flushed",
    operation="put",
    arms=(
        Arm("pylance", "mem_wal_writer, durable_write, max_wal_flush_interval_ms=1; does not sync", pylance_writer),
        Arm("memwal", "RegionWriter, durable_write, fsync off", partial(region_writer, fsync=False)),
        Arm(
            "memwal-arrow",
            "the same in a region of the arrow codec, which pylance's writer uses",
            partial(region_writer, fsync=False, status=RegionStatus.ACTIVE),
        ),
        Arm(
            "memwal+fsync",
            "RegionWriter as it is by default: file and directory synced",
            partial(region_writer, fsync=True),
        ),
        Arm(
            "merge_insert",
            f"one upsert of the table per batch, use_index(False), {MERGE_INSERTS} batches multiplied up; not synced",
            merge_inserts,
        ),
    ),
    cases=_cases,
    also=(PROCESSOR,),
)


def _slow_store(uri: str, settings: Settings) -> ObjectStore:
    store = FaultyStore(open_store(uri, settings=settings.storage))
    store.add(Rule(lambda _: time.sleep(LATENCY_S), Moment.BEFORE, times=None))
    return store


def _timed(operations: int, operation: Callable[[int], object]) -> Sample:
    waits = []
    for number in range(operations):
        began = time.perf_counter()
        operation(number)
        waits.append(time.perf_counter() - began)
    median, tail = np.percentile(waits, [50, 99])
    return {"seconds": float(sum(waits)), TAIL.name: float(tail / median)}


@contextmanager
def _objects(case: Case, directory: Path) -> Iterator[Work]:
    """Put one object after the other, as large as a batch."""
    settings = Settings(storage=StorageSettings(fsync=False))
    store = _slow_store(str(directory), settings)
    data = bytes(case.data.batches[0].nbytes)
    yield lambda: _timed(case.operations, lambda number: store.put_if_absent(_NAME.format(number), data))
    _require(len(list(store.list_objects("objects"))), case.operations)


@contextmanager
def _table_writer(case: Case, directory: Path) -> Iterator[Work]:
    settings = Settings(
        storage=StorageSettings(fsync=False),
        writer=WriterSettings(
            epoch_check_interval_s=CHECKS_S, schema_check_interval_s=CHECKS_S, max_memtable_rows=20 * LATENCY_ROWS
        ),
    )
    uri = str(directory / "table")
    lance.write_dataset(case.data.base, uri)
    made = BaseTable.open(uri, settings=settings)
    made.create_mem_wal_index([bucket_spec(1, "id", made.state().field_ids, REGIONS)])
    table = BaseTable.open(uri, store=_slow_store(uri, settings), settings=settings)
    batches = case.data.batches
    with TableWriter.open(table) as writer:
        writer.put(batches[0])  # Claims the regions.
        yield lambda: _timed(case.operations, lambda number: writer.put(batches[number + 1]))
    _require(Table.open(uri).count(consistency="durable"), case.data.keys)


def _latency_cases(full: bool) -> list[Case]:
    puts = 1_000 if full else 30
    return [Case(f"{puts:,} puts of {LATENCY_ROWS} rows", puts, put_data(LATENCY_ROWS, puts + 1))]


PUT_LATENCY = Comparison(
    name="put-latency",
    question=f"puts to {REGIONS} regions, each request {LATENCY_S * 1000:.0f} ms, with checks and flushes beside them",
    operation="put",
    arms=(
        Arm("objects", "an object as large as the batch, nothing else", _objects),
        Arm("memwal", f"TableWriter; epoch and schema checked each {CHECKS_S:.0f} s", _table_writer),
    ),
    cases=_latency_cases,
    rounds=3,
    also=(TAIL,),
)
