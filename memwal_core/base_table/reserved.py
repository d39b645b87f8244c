"""Names that Lance and MemTables give to columns of their own."""

from __future__ import annotations

import pyarrow as pa

from memwal_core.errors import InvalidRequestError

_TAKEN_NAMES = frozenset(
    {"_tombstone", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
"""Rows of a table with such a column cannot be written, or not be scanned once they are."""


def require_no_reserved_names(schema: pa.Schema) -> None:
    """Refuse a table whose columns have such names (``InvalidRequestError``); nothing was written."""
    taken = sorted(_TAKEN_NAMES & set(schema.names))
    if taken:
        raise InvalidRequestError(
            "columns have names that Lance and MemTables give to columns of their own",
            remedy="rename the columns before MemWAL is enabled",
            columns=taken,
        )
