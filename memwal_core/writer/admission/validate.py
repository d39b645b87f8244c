"""The check before every write: a batch is accepted whole or refused whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import InvalidRequestError
from memwal_core.memtable import with_tombstones
from memwal_core.native.arrow_input import as_table
from memwal_core.native.casting import (
    IN_PLACE_OF_UNSIGNED,
    cast,
    compact_rows,
    has_forbidden_null,
    has_narrow_dictionary,
    is_list,
    owned,
    unwrapped,
)
from memwal_core.writer.admission.row_checks import rows_that_do_not_cast, sample_rows

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def conform(rows: object, schema: pa.Schema, key_columns: Sequence[str]) -> pa.Table:
    """Bring a batch into the base table's schema; buffers are shared where nothing changes (see ``compact_rows``).

    Columns may come in any order. Lossless changes of representation are made (narrower integers and
    floats, what stands for unsigned integers, text and binary variants, dictionaries, run-end encoding, list layouts,
    all-NULL columns, instants in another time zone or unit, and these inside of nested values); everything else is
    refused, because a silent conversion of a caller's mistake cannot be undone.

    Raises:
        InvalidRequestError: It is no Arrow data, columns are missing or unknown, a type does not fit,
            or a key is NULL; the fact ``sample_rows`` shows rows that do not fit. Nothing was written; correct the
            batch. Or the table has a column that ``has_narrow_dictionary``.
    """
    table = as_table(rows)
    wanted, found = schema.names, table.column_names
    missing = [name for name in wanted if name not in found]
    unknown = [name for name in found if name not in wanted]
    if missing or unknown or len(found) != len(wanted):
        are_keys = set(wanted) <= set(key_columns)
        raise InvalidRequestError(
            f"the batch does not have the columns of the {'key' if are_keys else 'table'}; the whole batch was refused",
            remedy="send every column of the key exactly once, and no other"
            if are_keys
            else "send every column of the table exactly once; use NULL for unknown values",
            missing=missing,
            unknown=unknown,
            expected=wanted,
        )
    _require_valid(table)
    is_exact = table.schema.equals(schema)
    columns = table.columns if is_exact else [_conform_column(table, field, key_columns) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if column.null_count and (field.name in key_columns or not field.nullable):
            _refuse_null(table, field.name, column, key_columns)
        if has_forbidden_null(column):
            raise InvalidRequestError(
                "a nested value is NULL where its field does not allow it; the whole batch was refused",
                remedy="remove or complete the rows, or make the nested field nullable",
                column=field.name,
                expected=str(field.type),
            )
    _require_wide_dictionaries(schema)
    return compact_rows(table if is_exact else pa.Table.from_arrays(columns, names=wanted))


def tombstones(keys: object, schema: pa.Schema, key_columns: Sequence[str], memtable_schema: pa.Schema) -> pa.Table:
    """Make the rows, in the MemTable schema and memory of their own, that delete keys; ``keys`` has only key columns.

    Raises:
        InvalidRequestError: The keys do not fit, or a value column may not be NULL.
    """
    strict = [field.name for field in schema if field.name not in key_columns and not field.nullable]
    if strict:
        raise InvalidRequestError(
            "rows of this table cannot be deleted: a tombstone has NULL values, which some columns do not allow",
            remedy="make the columns nullable",
            columns_not_nullable=strict,
        )
    key_schema = pa.schema([field for field in schema if field.name in key_columns])
    named = owned(conform(keys, key_schema, key_columns))
    values = {field.name: pa.nulls(named.num_rows, field.type) for field in schema if field.name not in key_columns}
    columns = [values[name] if name in values else named.column(name) for name in schema.names]
    return with_tombstones(pa.Table.from_arrays(columns, names=schema.names), memtable_schema, deleted=True)


def _require_valid(table: pa.Table) -> None:
    """Refuse buffers that contradict each other: reading such a batch may end the process."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            "the batch contradicts its own layout; the whole batch was refused",
            remedy="make the batch anew; what made it wrote invalid Arrow data",
            cause=str(error),
        ) from error


def _require_wide_dictionaries(schema: pa.Schema) -> None:
    narrow = [field for field in schema if has_narrow_dictionary(field.type)]
    if narrow:
        raise InvalidRequestError(
            "Lance writes files that nobody can read where many values of these columns meet; the batch was refused",
            remedy="make the columns plain, or dictionaries with indices of 32 bits (docs/types.md)",
            columns=[field.name for field in narrow],
            found=str(narrow[0].type),
        )


def _conform_column(table: pa.Table, field: pa.Field, key_columns: Sequence[str]) -> pa.ChunkedArray:
    column = table.column(field.name)
    if column.type == field.type:
        return column
    if not _lossless(column.type, field.type):
        raise InvalidRequestError(
            "a column has the wrong type; the whole batch was refused",
            remedy="cast the column before writing",
            column=field.name,
            expected=str(field.type),
            found=str(column.type),
        )
    try:
        return cast(column, field.type)
    except pa.ArrowException as error:
        bad = rows_that_do_not_cast(column, field.type)
        raise InvalidRequestError(
            "a column cannot be converted without loss; the whole batch was refused",
            remedy="cast the column before writing",
            column=field.name,
            expected=str(field.type),
            found=str(column.type),
            bad_rows=len(bad) or len(column),  # Each fits alone where too many values together are at fault.
            first_row=bad[0] if bad else None,
            sample_rows=sample_rows(table, bad, [*key_columns, field.name]),
            cause=str(error),
        ) from error


def _lossless(found: pa.DataType, wanted: pa.DataType) -> bool:
    if _is_other_extension(found, wanted):
        return False
    found, wanted = unwrapped(found), unwrapped(wanted)
    if pa.types.is_null(found) or found == wanted:
        return True
    if pa.types.is_nested(found):
        return _lossless_parts(found, wanted)
    return _wider_number(found, wanted) or _other_form(found, wanted)


def _is_other_extension(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether the types give the same bytes two meanings; a plain type has any meaning."""
    both = [kind.extension_name for kind in (found, wanted) if isinstance(kind, pa.BaseExtensionType)]
    return len(set(both)) > 1


def _lossless_parts(found: pa.DataType, wanted: pa.DataType) -> bool:
    if is_list(found):
        return is_list(wanted) and _lossless(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _lossless(found.key_type, wanted.key_type) and _lossless(found.item_type, wanted.item_type)
    if not (pa.types.is_struct(found) and pa.types.is_struct(wanted)):
        return False
    parts, names = {field.name: field.type for field in found}, {field.name for field in wanted}
    return (
        len(parts) == found.num_fields == wanted.num_fields
        and names == set(parts)
        and all(_lossless(parts[field.name], field.type) for field in wanted)
    )


def _wider_number(found: pa.DataType, wanted: pa.DataType) -> bool:
    if found == IN_PLACE_OF_UNSIGNED.get(wanted):
        return True
    if any(is_kind(found) and is_kind(wanted) for is_kind in (pa.types.is_integer, pa.types.is_floating)):
        return bool(found.bit_width <= wanted.bit_width)
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        return bool(found.scale <= wanted.scale and found.precision <= wanted.precision)
    return False


def _other_form(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        # The same instant in another zone; a checked cast refuses digits that a coarser unit would drop.
        return (found.tz is None) == (wanted.tz is None)
    if any(is_kind(found) and is_kind(wanted) for is_kind in (pa.types.is_time, pa.types.is_date)):
        return True  # A checked cast refuses what another unit would drop.
    if pa.types.is_fixed_size_binary(wanted):
        return any(is_kind(found) for is_kind in _BINARY)
    return any(
        any(is_kind(found) for is_kind in kind) and any(is_kind(wanted) for is_kind in kind)
        for kind in (_TEXT, _BINARY)
    )


def _refuse_null(table: pa.Table, name: str, column: pa.ChunkedArray, key_columns: Sequence[str]) -> NoReturn:
    rows = pc.indices_nonzero(pc.is_null(column)).to_pylist()
    is_key = name in key_columns
    what = "a primary key value is NULL" if is_key else "a value is NULL in a column that does not allow it"
    raise InvalidRequestError(
        f"{what}; the whole batch was refused",
        remedy="remove or complete the rows",
        column=name,
        null_rows=column.null_count,
        first_row=rows[0],
        sample_rows=sample_rows(table, rows, [*key_columns, name]),
    )
