"""Rows prepared by Lance's own merge-insert, for one process that holds them in memory.

Lance joins the rows with the keys of a version and writes fragments and deletion vectors, but commits nothing:
``BaseTable.strict_commit`` publishes them, with merge progress. Always without a key index and with a table in
memory: the scan is bounded in memory and nearly always the fastest. Lance's memory pool is set by its environment
variable ``LANCE_MEM_POOL_SIZE`` (bytes), which the entry points export.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa

from memwal_core.base_table.translate import translated
from memwal_core.format.paths import DATA_DIRECTORY
from memwal_core.native.casting import compact_rows

_OWN_COLUMNS = frozenset({"__action", "__merge_source_sentinel"})


@dataclass(frozen=True, slots=True)
class JoinedUpsert:
    """Rows that were written and joined with a version; nothing is visible yet.

    Attributes:
        operation: What makes them part of the version after the one that was read.
        updated: Its rows that are replaced.
        paths: The files written, relative to the table.
    """

    operation: Any
    inserted: int
    updated: int
    paths: frozenset[str]


def join_obstacle(schema: pa.Schema, key: Sequence[str]) -> str:
    """Return why Lance cannot join rows of a schema, because of names; empty if it can."""
    quoted = [name for name in key if '"' in name]
    if quoted:
        return f"key columns {quoted} have quotes in their names"
    own = sorted(_OWN_COLUMNS & set(schema.names))
    return f"Lance's join has columns {own} of its own" if own else ""


def prepare_upsert(dataset: lance.LanceDataset, rows: pa.Table, key: Sequence[str]) -> JoinedUpsert:
    """Write rows, at least one and each key once, and find what they replace. Files may be left after an error."""
    builder: Any = dataset.merge_insert(list(key)).when_matched_update_all().when_not_matched_insert_all()
    with translated("join rows", dataset.uri, read_version=dataset.version, rows=rows.num_rows):
        transaction, counts = builder.use_index(False).execute_uncommitted(compact_rows(rows))
        operation = transaction.operation
        paths = {f"{DATA_DIRECTORY}/{file.path}" for each in operation.new_fragments for file in each.files}
        deletions = ((each.id, each.deletion_file) for each in operation.updated_fragments)
        paths |= {file.path(fragment_id) for fragment_id, file in deletions if file is not None}
    return JoinedUpsert(operation, counts["num_inserted_rows"], counts["num_updated_rows"], frozenset(paths))
