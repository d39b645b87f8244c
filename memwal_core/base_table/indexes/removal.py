"""Removing an index of the base table and its entries in the MemWAL index in one strict commit."""

from __future__ import annotations

import lance
from lance.dataset import Index

from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable, DetailsChange
from memwal_core.base_table.translate import translated
from memwal_core.errors import InvalidRequestError


def remove_index(table: BaseTable, name: str, *, read: TableState, change: DetailsChange) -> int:
    """Remove an index with all its segments, change the MemWAL index with it, and return the new version.

    ``read`` is the version in which it was decided that the index may go; after a ``ConflictError``,
    decide again.
    """
    with translated("list index segments", table.uri, index=name, version=read.version):
        described = [index for index in table.dataset(read.version).describe_indices() if index.name == name]
    if not described:
        raise InvalidRequestError(
            "the table has no such index", remedy="name an index that it has", table=table.uri, index=name
        )
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
    return table.strict_commit(operation, read=read, change=change, message=f"remove index {name}").version
