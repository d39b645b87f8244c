"""Reading the winners of a merge on Spark executors.

Regions share no keys, so each region is one task and nothing is shuffled between them. Executors
only read; the driver alone commits, so a repeated or speculative attempt of a task cannot apply
anything twice. Rows travel as Arrow IPC bytes inside a binary column, so every Arrow type survives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Row

from memwal_core.errors import InternalError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.jobs.merge.read.winners import MergeWinners, RegionTask, read_region
from memwal_core.settings import MIB
from memwal_core.spark.session import Session, session_of

CHUNK_BYTES = 32 * MIB
"""Upper bound of one binary value, as long as no single row is larger."""

_FRAMING_BYTES = MIB
"""Room for schema, offsets and padding of a stream."""

_TASK_SCHEMA = "task string"
_CHUNK_SCHEMA = "region_id string, merged long, through long, rows_read long, part string, ipc binary"
_UPSERTS = "upserts"
_TOMBSTONES = "tombstones"


class SparkReader:
    """Reads the regions of a merge in parallel on executors.

    A session given as a function starts with the first task. Storage options go into the task closure,
    so prefer the executors' environment for secrets.
    """

    def __init__(self, spark: Session, storage_options: Mapping[str, str]) -> None:
        self._spark = spark
        self._storage_options = dict(storage_options)

    def __call__(self, tasks: Sequence[RegionTask]) -> Iterator[MergeWinners]:
        """Yield the winners of all tasks, each region's in ascending order.

        The driver holds one region at a time, besides what the caller keeps.
        """
        if not tasks:
            return
        by_region = {task.region_id: task for task in tasks}
        spark = session_of(self._spark)
        rows = spark.sparkContext.parallelize([(task.to_json(),) for task in tasks], len(tasks))
        frame = spark.createDataFrame(rows, _TASK_SCHEMA)
        chunks = frame.mapInArrow(_executor(self._storage_options), _CHUNK_SCHEMA).persist(StorageLevel.DISK_ONLY)
        try:
            # A local iterator computes one partition after another; counting computes all in parallel.
            chunks.count()
            yield from _assembled(chunks.toLocalIterator(), by_region)
        finally:
            chunks.unpersist()


def _assembled(chunks: Iterator[Row], tasks: Mapping[RegionId, RegionTask]) -> Iterator[MergeWinners]:
    assembly: _Assembly | None = None
    for chunk in chunks:
        identity = (parse_region_id(chunk.region_id), chunk.merged, chunk.through, chunk.rows_read)
        if assembly is not None and assembly.identity != identity:
            yield assembly.finished()
            assembly = None
        if assembly is None:
            assembly = _Assembly(identity, tasks[identity[0]])
        assembly.add(chunk.part, bytes(chunk.ipc))
    if assembly is not None:
        yield assembly.finished()


class _Assembly:
    """One segment that is assembled from its chunks."""

    def __init__(self, identity: tuple[RegionId, int, int, int], task: RegionTask) -> None:
        key_schema = pa.schema([task.target.schema.field(name) for name in task.target.key])
        self.identity = identity
        self._parts: dict[str, list[pa.Table]] = {
            _UPSERTS: [task.rows.schema.empty_table()],
            _TOMBSTONES: [key_schema.empty_table()],
        }

    def add(self, part: str, ipc: bytes) -> None:
        if part not in self._parts:
            raise InternalError("an executor sent an unknown part", remedy="report this", part=part)
        self._parts[part].append(pa.ipc.open_stream(ipc).read_all())

    def finished(self) -> MergeWinners:
        region_id, merged, through, rows_read = self.identity
        return MergeWinners(
            region_id=region_id,
            merged=merged,
            through=through,
            upserts=pa.concat_tables(self._parts[_UPSERTS]),
            tombstones=pa.concat_tables(self._parts[_TOMBSTONES]),
            rows_read=rows_read,
        )


def _executor(storage_options: dict[str, str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column("task").to_pylist():
                for winners in read_region(RegionTask.from_json(text), storage_options):
                    yield from _chunks(winners)

    return read


def _chunks(winners: MergeWinners) -> Iterator[pa.RecordBatch]:
    for part, table in ((_UPSERTS, winners.upserts), (_TOMBSTONES, winners.tombstones)):
        for ipc in ipc_chunks(table, CHUNK_BYTES):
            yield pa.record_batch(
                {
                    "region_id": [str(winners.region_id)],
                    "merged": pa.array([winners.merged], pa.int64()),
                    "through": pa.array([winners.through], pa.int64()),
                    "rows_read": pa.array([winners.rows_read], pa.int64()),
                    "part": [part],
                    "ipc": pa.array([ipc], pa.binary()),
                }
            )


def ipc_chunks(table: pa.Table, limit_bytes: int) -> Iterator[bytes]:
    """Yield a table as Arrow IPC streams, at least one, each within the limit unless one row exceeds it."""
    if table.num_rows > 1 and table.nbytes > limit_bytes - _FRAMING_BYTES:
        half = table.num_rows // 2
        yield from ipc_chunks(table.slice(0, half), limit_bytes)
        yield from ipc_chunks(table.slice(half), limit_bytes)
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    yield sink.getvalue().to_pybytes()
