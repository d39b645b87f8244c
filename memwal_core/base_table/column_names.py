"""Names of columns that Lance cannot ask flushed MemTables for, so that rows under them could never be merged."""

from __future__ import annotations

import pyarrow as pa

from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import CREATED_AT, ROW_ADDRESS, ROW_ID, TOMBSTONE_COLUMN, UPDATED_AT

_TAKEN = frozenset(
    {
        "",
        "*",
        "_rowoffset",
        ROW_ID,
        ROW_ADDRESS,
        CREATED_AT,
        UPDATED_AT,
        TOMBSTONE_COLUMN,
    }
)
"""What means something else: nothing, all columns, Lance's own columns, the mark of deleted rows."""

_QUOTE = "`"


def require_usable_names(schema: pa.Schema) -> None:
    """Refuse columns whose names mean something else to Lance, before a row is written under them.

    Raises:
        InvalidRequestError: There are some; nothing was written.
    """
    unusable = [name for name in schema.names if name in _TAKEN or _QUOTE in name]
    if unusable:
        raise InvalidRequestError(
            "Lance cannot read these columns back from flushed MemTables by their names",
            remedy="rename them: not empty, not *, without a backtick, and none of the names that Lance uses itself",
            columns=unusable,
        )
