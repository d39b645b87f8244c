"""The workers of a single-commit merge: this process, or others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from memwal_core.base_table import TableReader
from memwal_core.base_table.commit.row_changes import FragmentChange
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.work.search_base import keys_in_memory, search_unit
from memwal_core.jobs.merge.work.units import SearchUnit, WriteUnit, WrittenUnit
from memwal_core.jobs.merge.work.write_winners import keep_in_memory, write_unit


class MergeWorkers(Protocol):
    """Carries out units of work. Each unit may run several times; one outcome of each is returned."""

    @property
    def executors(self) -> int:
        """Number of processes that work at once."""
        ...

    @property
    def stages(self) -> bool:
        """Whether files are left in the staging directory."""
        ...

    def write(self, units: Sequence[WriteUnit], staging: str) -> Iterator[WrittenUnit]:
        """Write winners as fragments.

        ``staging`` is a directory, relative to the table, for what other processes must see; everything in it
        afterwards belongs to this pass. An ``ObjectNotFoundError`` means that a generation vanished: plan
        again.
        """
        ...

    def search(self, units: Sequence[SearchUnit]) -> Iterator[FragmentChange]:
        """Find superseded rows and write deletion vectors."""
        ...


class InProcessWorkers:
    """Carries out the units one after another in this process, with the generations that a survey opened."""

    executors = 1
    stages = False

    def __init__(self, table: TableReader, opened: OpenedGenerations | None = None) -> None:
        self._table = table
        self._take = opened.take if opened is not None else None

    def write(self, units: Sequence[WriteUnit], staging: str) -> Iterator[WrittenUnit]:  # noqa: ARG002 - nothing is staged
        """Write winners as fragments."""
        for unit in units:
            yield write_unit(unit, self._table, keep_in_memory, self._take)

    def search(self, units: Sequence[SearchUnit]) -> Iterator[FragmentChange]:
        """Find superseded rows and write deletion vectors."""
        for unit in units:
            yield from search_unit(unit, self._table, keys_in_memory)
