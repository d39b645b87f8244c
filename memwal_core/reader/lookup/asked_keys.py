"""Keys as a caller passes them, and as the table has them."""

from __future__ import annotations

import pyarrow as pa

from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import InvalidRequestError
from memwal_core.native.casting import cast_rows


def key_schema(schema: pa.Schema, key: tuple[str, ...]) -> pa.Schema:
    """Return the key columns of a table, in the order of the key."""
    return pa.schema([schema.field(name).remove_metadata() for name in key])


def conformed(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the distinct keys in the order and with the types of ``key_schema``.

    Raises:
        InvalidRequestError: They do not fit the table.
    """
    key = schema.names
    names = keys.column_names
    if names != key and sorted(names) != sorted(key):
        raise InvalidRequestError(
            "the columns are not those of the primary key",
            remedy="pass exactly the key columns",
            expected=key,
            found=names,
        )
    try:
        fits = names == key and keys.schema.types == schema.types
        typed = pa.Table.from_arrays(keys.columns, schema=schema) if fits else cast_rows(keys.select(key), schema)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequestError(
            "the keys do not fit the primary key's types",
            remedy="cast the key columns, and remove NULLs",
            cause=str(error),
        ) from error
    if any(column.null_count for column in typed.columns):
        raise InvalidRequestError("a key is NULL", remedy="remove it; no row has a NULL key", columns=key)
    return typed.take(pa.array(last_row_per_key(typed, key))) if typed.num_rows > 1 else typed
