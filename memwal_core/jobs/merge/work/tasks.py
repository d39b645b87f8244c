"""What is done with one unit of work, in any process."""

from __future__ import annotations

from collections.abc import Iterator

from memwal_core.base_table.commit.row_changes import FragmentChange
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.work.search_base import keys_in_memory, search_unit
from memwal_core.jobs.merge.work.staged_keys import KeyStager, StagedKeys
from memwal_core.jobs.merge.work.units import SearchUnit, WriteUnit, WrittenUnit
from memwal_core.jobs.merge.work.write_winners import keep_in_memory, write_unit


def write_winners(
    opened: OpenedGenerations, staging: str, context: JobContext, unit: WriteUnit
) -> Iterator[WrittenUnit]:
    """Write winners as fragments; errors as of ``write_unit``.

    Args:
        opened: Has what a survey opened.
        staging: Directory, relative to the table, for keys that other processes must see; everything in it afterwards
            belongs to the pass. Keys stay in memory if it is empty.
        context: The run.
        unit: The winners.
    """
    table = context.base
    keep = KeyStager(table.store, staging, table.ids) if staging else keep_in_memory
    yield write_unit(unit, table, keep, opened.take)


def find_superseded(staging: str, context: JobContext, unit: SearchUnit) -> Iterator[FragmentChange]:
    """Find superseded rows and write deletion vectors; ``staging`` as for ``write_winners``."""
    table = context.base
    yield from search_unit(unit, table, StagedKeys(table.store) if staging else keys_in_memory)
