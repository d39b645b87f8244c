"""Columns of blobs: values that Lance keeps beside the rows, which hold only where each value lies."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from memwal_core.errors import InvalidRequestError

_MARK = b"lance-encoding:blob"
_TYPES = "lance.blob."


def blob_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns with blobs in them, of both of Lance's layouts; a nested one is written ``a.b``."""
    return tuple(_blobs(schema, ""))


def require_no_blobs(schema: pa.Schema, purpose: str) -> None:
    """Refuse blob columns, where rows would be copied without the values that they point at.

    Raises:
        InvalidRequestError: There are some; nothing was written.
    """
    blobs = blob_columns(schema)
    if blobs:
        raise InvalidRequestError(
            f"the table has blob columns, whose values MemWAL cannot {purpose}",
            remedy="store the values as plain binary, or keep them in a table without MemWAL (docs/types.md); "
            "reads may name the other columns",
            columns=list(blobs),
        )


def _blobs(fields: pa.Schema | pa.StructType, prefix: str) -> Iterator[str]:
    for field in fields:
        name = f"{prefix}{field.name}"
        if _is_blob(field):
            yield name
        elif pa.types.is_struct(field.type):
            yield from _blobs(field.type, f"{name}.")


def is_blob_type(kind: pa.DataType) -> bool:
    """Return whether a type is that of Lance's second layout; the first one marks fields of a plain type."""
    return isinstance(kind, pa.BaseExtensionType) and str(kind.extension_name).startswith(_TYPES)


def _is_blob(field: pa.Field) -> bool:
    return is_blob_type(field.type) or _MARK in (field.metadata or {})
