"""The single-commit merge on Spark executors.

Two stages, each one action whose outcomes are collected once: executors write the winners of their
regions as fragments and stage the keys; then executors find what those keys supersede and write
deletion vectors. The driver sees descriptions of files only, and it alone commits. A repeated or
speculative attempt of a task writes other fragments (removed by the driver at the end) and the same
deletion vectors (byte for byte), so nothing can be applied twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.row_changes import FragmentChange
from memwal_core.jobs.merge.work.search_base import search_unit
from memwal_core.jobs.merge.work.staged_keys import KeyStager, StagedKeys
from memwal_core.jobs.merge.work.units import SearchUnit, WriteUnit, WrittenUnit
from memwal_core.jobs.merge.work.write_winners import write_unit
from memwal_core.spark.reachable import require_reachable
from memwal_core.spark.session import Session, session_of

_SCHEMA = "document string"
_COLUMN = "document"

_Work = Callable[[BaseTable, str], Iterator[str]]


class SparkWorkers:
    """Runs units of work on the executors of a session.

    A session given as a function starts with the first unit, or when a plan asks how many executors there
    are. Executors open the table by its address, so one in this process's memory is refused. Storage options
    go into the task closure, so prefer the executors' environment for secrets.
    """

    stages = True

    def __init__(self, spark: Session, table: BaseTable, storage_options: Mapping[str, str]) -> None:
        require_reachable(table)
        self._spark = spark
        self._uri = table.uri
        self._storage_options = dict(storage_options)

    @property
    def executors(self) -> int:
        """Tasks that run at once."""
        return max(1, int(session_of(self._spark).sparkContext.defaultParallelism))

    def write(self, units: Sequence[WriteUnit], staging: str) -> Iterator[WrittenUnit]:
        """Write winners as fragments."""

        def work(table: BaseTable, text: str) -> Iterator[str]:
            yield write_unit(WriteUnit.from_json(text), table, KeyStager(table.store, staging, table.ids)).to_json()

        for text in self._run(work, [unit.to_json() for unit in units]):
            yield WrittenUnit.from_json(text)

    def search(self, units: Sequence[SearchUnit]) -> Iterator[FragmentChange]:
        """Find superseded rows and write deletion vectors."""

        def work(table: BaseTable, text: str) -> Iterator[str]:
            for change in search_unit(SearchUnit.from_json(text), table, StagedKeys(table.store)):
                yield change.to_json()

        for text in self._run(work, [unit.to_json() for unit in units]):
            yield FragmentChange.from_json(text)

    def _run(self, work: _Work, documents: list[str]) -> list[str]:
        if not documents:
            return []
        spark = session_of(self._spark)
        rows = spark.sparkContext.parallelize([(text,) for text in documents], len(documents))
        frame = spark.createDataFrame(rows, _SCHEMA)
        # One action, collected once: computing a partition again would write its files again.
        return [row.document for row in frame.mapInArrow(self._task(work), _SCHEMA).collect()]

    def _task(self, work: _Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        uri, storage_options = self._uri, self._storage_options

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            table = BaseTable.open(uri, storage_options=storage_options)
            for batch in batches:
                for text in batch.column(_COLUMN).to_pylist():
                    for document in work(table, text):
                        yield pa.record_batch({_COLUMN: pa.array([document], pa.string())})

        return run
