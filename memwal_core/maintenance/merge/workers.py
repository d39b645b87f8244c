"""Who does the work of a single-commit merge: this process, or others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from memwal_core.base_table import TableReader
from memwal_core.base_table.rewrite import FragmentChange
from memwal_core.maintenance.merge.opened import OpenedGenerations
from memwal_core.maintenance.merge.search_base import keys_in_memory, search_unit
from memwal_core.maintenance.merge.units import SearchUnit, WriteUnit, WrittenUnit
from memwal_core.maintenance.merge.write_winners import keep_in_memory, write_unit


class MergeWorkers(Protocol):
    """Carries out units of work. Each may run several times; one outcome of each is returned."""

    @property
    def executors(self) -> int:
        """Processes that work at once."""
        ...

    @property
    def stages(self) -> bool:
        """Whether files are left in the staging directory."""
        ...

    def write(self, units: Sequence[WriteUnit], staging: str) -> Iterator[WrittenUnit]:
        """Write winners as fragments.

        Args:
            units: What to write.
            staging: Directory, relative to the table, for what other processes must see. Whatever
                is in it afterwards belongs to this pass.

        Raises:
            UnavailableError: Storage failed.
            ObjectNotFoundError: A generation vanished. Plan anew.
            CorruptionError: A generation contradicts its table.
        """
        ...

    def search(self, units: Sequence[SearchUnit]) -> Iterator[FragmentChange]:
        """Find superseded rows and write deletion vectors.

        Args:
            units: What to look for and where.

        Raises:
            UnavailableError: Storage failed.
            CorruptionError: Stored state contradicts itself.
        """
        ...


class InProcessWorkers:
    """Carries out the units one after another in this process.

    Args:
        table: The base table.
        opened: Has what a survey opened; nothing if None.
    """

    executors = 1
    stages = False

    def __init__(self, table: TableReader, opened: OpenedGenerations | None = None) -> None:
        """Keep the parts."""
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
