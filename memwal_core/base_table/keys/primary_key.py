"""The primary key of a base table: which columns, in which order, and whether MemWAL can use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from memwal_core.errors import CorruptionError, InvalidRequestError

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
"""Field metadata of key columns: ``true``."""

PRIMARY_KEY_POSITION = "lance-schema:unenforced-primary-key:position"
"""Field metadata of key columns: position in the key, from 1."""

_UNNAMEABLE = "`"
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class PrimaryKey:
    """The unenforced primary key that a schema defines; without columns if it defines none.

    Attributes:
        columns: Names in key order (which hashes depend on); a nested one is written ``a.b``.
    """

    columns: tuple[str, ...]
    field_ids: tuple[int, ...]


def primary_key_of(fields: Iterable[Any]) -> PrimaryKey:
    """Return the primary key among the fields that ``LanceSchema.fields()`` returns.

    Fields with a position come in its order, the others behind them in schema order.
    """
    found = [(name, field) for name, field in _walk(fields, "") if field.is_unenforced_primary_key()]
    positions = [field.unenforced_primary_key_position() for _, field in found]
    order = sorted(range(len(found)), key=lambda at: (positions[at] is None, positions[at] or 0, at))
    return PrimaryKey(tuple(found[at][0] for at in order), tuple(found[at][1].id() for at in order))


def require_plain_names(schema: pa.Schema, version: int) -> None:
    """Refuse a version of which two columns have one name, or one a name that the native code cannot take.

    Raises:
        CorruptionError: The manifest of the version says so, which no program of good faith wrote.
    """
    names = schema.names
    if len(set(names)) < len(names) or any("\0" in name for name in names):
        raise CorruptionError(
            "the columns of the table do not have names of their own",
            remedy="stop all jobs of this table; restore the manifest from a copy",
            version=version,
            columns=names[:_SHOWN],
        )


def check_primary_key(schema: pa.Schema, key: PrimaryKey) -> PrimaryKey:
    """Return the key if MemWAL can identify rows by it.

    ``InvalidRequestError``: there is no key, or one of its columns is nested, nullable, or of a type that
    Lance cannot hash.
    """
    if not key.columns:
        raise InvalidRequestError(
            "the table defines no primary key, so MemWAL cannot identify its rows",
            remedy="name the columns of the key (`memwal enable --key COLUMN`), or set their field metadata "
            "lance-schema:unenforced-primary-key",
            columns=schema.names,
        )
    for name in key.columns:
        if name not in schema.names:
            raise InvalidRequestError(
                "a primary key column is nested in another column",
                remedy="use top-level columns as primary key",
                column=name,
            )
        if _UNNAMEABLE in name:
            raise InvalidRequestError(
                "Lance cannot name this primary key column in a query",
                remedy="use a key column without a backtick in its name",
                column=name,
            )
        field = schema.field(name)
        if field.nullable:
            raise InvalidRequestError(
                "a primary key column may hold NULL", remedy="make the column NOT NULL", column=name
            )
        if not is_key_type(field.type):
            raise InvalidRequestError(
                "this type cannot be a primary key",
                remedy="use integers, booleans, text or binary as primary key",
                column=name,
                type=str(field.type),
            )
    return key


def is_key_type(data_type: pa.DataType) -> bool:
    """Return whether Lance can hash values of a type as a MemWAL primary key."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )


def _walk(fields: Iterable[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for field in fields:
        name = f"{prefix}{field.name()}"
        yield name, field
        yield from _walk(field.children(), f"{name}.")
