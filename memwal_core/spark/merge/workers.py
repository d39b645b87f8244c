"""The single-commit merge on Spark executors.

Two stages, each one action whose outcomes are collected once: executors write the winners of their
regions as fragments and stage the keys; then executors find what those keys supersede and write
deletion vectors. The driver sees descriptions of files only, and it alone commits. A repeated or
speculative attempt of a task writes other fragments (removed by the driver at the end) and the same
deletion vectors (byte for byte), so nothing can be applied twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.row_changes import FragmentChange
from memwal_core.jobs.merge.work.search_base import search_unit
from memwal_core.jobs.merge.work.staged_keys import KeyStager, StagedKeys
from memwal_core.jobs.merge.work.units import SearchUnit, WriteUnit, WrittenUnit
from memwal_core.jobs.merge.work.write_winners import write_unit
from memwal_core.settings import Settings
from memwal_core.spark.reachable import require_reachable
from memwal_core.spark.session import Session
from memwal_core.spark.tasks import SparkTasks


@dataclass(frozen=True, slots=True)
class _Address:
    """How executors open the table."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    settings: Settings

    def open(self) -> BaseTable:
        return BaseTable.open(self.uri, storage_options=self.storage_options, settings=self.settings)


class SparkWorkers:
    """Runs units of work on the executors of a session.

    A session given as a function starts with the first unit, or when a plan asks how many executors there
    are. Executors open the table by its address, so one in this process's memory is refused. Storage options
    go into the task closure, so prefer the executors' environment for secrets.
    """

    stages = True

    def __init__(self, spark: Session, table: BaseTable) -> None:
        require_reachable(table)
        self._tasks = SparkTasks(spark, table.uri)
        self._table = _Address(table.uri, dict(table.storage_options), table.settings)

    @property
    def executors(self) -> int:
        """Tasks that run at once."""
        return self._tasks.slots

    def write(self, units: Sequence[WriteUnit], staging: str) -> Iterator[WrittenUnit]:
        """Write winners as fragments."""
        yield from self._tasks.map("merge: write winners", partial(_write, self._table, staging), units)

    def search(self, units: Sequence[SearchUnit]) -> Iterator[FragmentChange]:
        """Find superseded rows and write deletion vectors."""
        for changes in self._tasks.map("merge: find what they supersede", partial(_search, self._table), units):
            yield from changes


def _write(address: _Address, staging: str, unit: WriteUnit) -> WrittenUnit:
    table = address.open()
    return write_unit(unit, table, KeyStager(table.store, staging, table.ids))


def _search(address: _Address, unit: SearchUnit) -> list[FragmentChange]:
    table = address.open()
    return list(search_unit(unit, table, StagedKeys(table.store)))
