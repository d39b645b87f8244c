"""Names of columns that Lance cannot ask flushed MemTables for, so that rows under them could never be merged."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import CREATED_AT, ROW_ADDRESS, ROW_ID, ROW_OFFSET, TOMBSTONE_COLUMN, UPDATED_AT

_TAKEN = frozenset(
    {
        "",
        "*",
        ROW_ID,
        ROW_ADDRESS,
        ROW_OFFSET,
        CREATED_AT,
        UPDATED_AT,
        TOMBSTONE_COLUMN,
    }
)
"""What means something else: nothing, all columns, Lance's own columns, the mark of deleted rows."""

_QUOTE = "`"
_END = "\0"
"""Ends a name where Arrow hands it over between Python and Lance."""


def require_usable_names(schema: pa.Schema) -> None:
    """Refuse columns whose names mean something else to Lance, or nothing, before a row is written under them.

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
    times = Counter(schema.names)
    confused = [field.name for field in schema if times[field.name] > 1 or _confuses(field.name, field.type)]
    if confused:
        raise InvalidRequestError(
            "Lance cannot tell the names of columns apart, or those of the fields in them",
            remedy="name each column, and each field of a struct, once, and without NUL characters",
            columns=list(dict.fromkeys(confused)),
        )


def _confuses(name: str, kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _confuses(name, kind.storage_type)
    fields = [kind.field(number) for number in range(kind.num_fields)]
    names = {field.name for field in fields}
    return _END in name or len(names) < len(fields) or any(_confuses(field.name, field.type) for field in fields)
