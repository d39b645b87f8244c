"""The second stage of an ingestion: one task owns a region and writes its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from memwal_core.base_table import BaseTable
from memwal_core.errors import CommitUnknownError, InternalError, MemwalError, UnavailableError
from memwal_core.ids import RegionId
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.share import RegionShare, ShareOutcome, write_share
from memwal_core.settings import Settings
from memwal_core.spark.ingest.routed import INTERNAL, ORDER, PLACE, REGION, SEQUENCE, aliases, without_aliases
from memwal_core.writer import Takeover

_SCHEMA = "document string"
_TASKS_PER_CORE = 8
_WORTH_A_RETRY = (UnavailableError, CommitUnknownError)


@dataclass(frozen=True, slots=True)
class ShareTasks:
    """What the tasks of the second stage need. Goes to the executors.

    Attributes:
        regions: Region value as text -> region, of the shares to write.
        columns: Of the table.
    """

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    settings: Settings
    batch: BatchId
    takeover: Takeover
    regions: Mapping[str, RegionId]
    columns: tuple[str, ...]

    def run(self, rows: DataFrame, sizes: Mapping[str, int], key: Sequence[str]) -> list[ShareOutcome]:
        """Write the shares and return one outcome each; every region's rows go to one task.

        ``rows`` come from ``routed``, without problems; ``sizes`` (rows per region value) balance the tasks, and tell
        whether Spark has made other rows of the batch since they were checked. Errors that a retry cannot mend travel
        as documents, so that Spark does not repeat the task.
        """
        spark = rows.sparkSession
        count = max(1, min(len(self.regions), spark.sparkContext.defaultParallelism * _TASKS_PER_CORE))
        by_size = sorted(self.regions, key=lambda value: -sizes[value])
        places = [(value, number % count) for number, value in enumerate(by_size)]
        task_of = spark.createDataFrame(places, f"{REGION} string, __task int")
        order = [sf.col(name) for name in (ORDER, PLACE) if name in rows.columns]
        called = aliases(self.columns)
        columns = [sf.col(REGION), *(sf.col(called[name]) for name in key), *order, sf.col(SEQUENCE)]
        owned = rows.join(sf.broadcast(task_of), REGION).repartitionById(count, sf.col("__task"))
        arranged = owned.sortWithinPartitions(*columns)
        names = [name for name in rows.columns if name not in INTERNAL]
        shares = arranged.select(REGION, *names)
        # One action, collected once: descriptions of shares only.
        documents = [json.loads(row.document) for row in shares.mapInArrow(self._task(sizes), _SCHEMA).collect()]
        for document in documents:
            if "error" in document:
                raise _rebuilt(document)
        return [ShareOutcome(**document) for document in documents]

    def _task(self, sizes: Mapping[str, int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            attempt = str(context.attemptNumber() + 1 if context is not None else 1)
            table = BaseTable.open(self.uri, storage_options=self.storage_options or None, settings=self.settings)
            for value, slices in groupby(_by_region(batches), key=lambda each: each[0]):
                share = RegionShare(self.batch, value, self.regions[value], self.takeover, attempt, sizes[value])
                try:
                    rows = (without_aliases(each, self.columns) for _, each in slices)
                    document: dict[str, object] = asdict(write_share(table, share, rows))
                except _WORTH_A_RETRY:
                    raise
                except MemwalError as error:
                    document = _described(error)
                yield pa.record_batch({"document": pa.array([json.dumps(document)])})

        return write


def _by_region(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Cut batches, whose rows are sorted by region, where the region changes."""
    for batch in batches:
        if not batch.num_rows:
            continue
        position = batch.schema.get_field_index(REGION)
        runs = pc.run_end_encode(batch.column(position), run_end_type=pa.int32())
        rows = pa.Table.from_batches([batch]).remove_column(position)
        start = 0
        for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield value, rows.slice(start, end - start)
            start = end


def _kinds() -> dict[str, type[MemwalError]]:
    """Return the errors of this package by name, also those that other modules than ``errors`` declare."""
    found: dict[str, type[MemwalError]] = {}
    waiting: list[type[MemwalError]] = [MemwalError]
    while waiting:
        kind = waiting.pop()
        found.setdefault(kind.__name__, kind)
        waiting += kind.__subclasses__()
    return found


def _described(error: MemwalError) -> dict[str, object]:
    facts = {name: fact if isinstance(fact, int | float | str | list | None) else str(fact)
             for name, fact in error.facts.items()}  # fmt: skip
    return {"error": type(error).__name__, "what": error.what, "remedy": error.remedy, "facts": facts}


def _rebuilt(document: Mapping[str, object]) -> MemwalError:
    kind = _kinds().get(str(document["error"]), InternalError)
    facts = document["facts"]
    assert isinstance(facts, dict)  # noqa: S101 - written by ``_described``
    error: MemwalError = kind(str(document["what"]), remedy=str(document["remedy"]), **facts)
    return error
