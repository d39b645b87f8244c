"""Removing an index of the base table in a strict commit, together with what the MemWAL index says of it."""

from __future__ import annotations

import lance
from lance.dataset import Index

from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable, DetailsChange
from memwal_core.base_table.translate import translated
from memwal_core.errors import InvalidRequestError


def remove_index(table: BaseTable, name: str, *, read: TableState, change: DetailsChange) -> int:
    """Remove an index with all its segments, and change the MemWAL index, in one commit.

    Args:
        table: The table.
        name: The index; not one of Lance's own.
        read: The version in which it was decided that the index may go.
        change: New MemWAL index details, without the index.

    Returns:
        The version without it.

    Raises:
        InvalidRequestError: There is no such index in that version.
        ConflictError: The table has moved on; decide anew.
        CommitUnknownError: Read the table before trying again.
    """
    with translated("list index segments", table.uri, index=name, version=read.version):
        described = [index for index in table.dataset(read.version).describe_indices() if index.name == name]
    if not described:
        raise InvalidRequestError("there is no such index", remedy="correct the name", table=table.uri, index=name)
    segments = [
        Index(
            uuid=segment.uuid,
            name=name,
            fields=list(index.fields),
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=segment.fragment_ids,
            index_version=segment.index_version,
        )
        for index in described
        for segment in index.segments
    ]
    operation = lance.LanceOperation.CreateIndex(new_indices=[], removed_indices=segments)
    return table.strict_commit(operation, read=read, change=change, message=f"remove index {name}")
