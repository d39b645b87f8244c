"""Names that rows in MemTables have besides those of the table's columns."""

from __future__ import annotations

import pyarrow as pa

from memwal_core.errors import InvalidRequestError

_TOMBSTONE_COLUMN = "_tombstone"


def require_no_reserved_names(schema: pa.Schema) -> None:
    """Refuse a column with the name of the mark that tells whether a row deletes its key.

    Raises:
        InvalidRequestError: There is one; nothing was written.
    """
    if _TOMBSTONE_COLUMN in schema.names:
        raise InvalidRequestError(
            "the table has a column whose name MemTables need for the mark of deleted rows",
            remedy="give the column another name",
            column=_TOMBSTONE_COLUMN,
        )
