"""Casts and copies of Arrow data after which no library crashes.

pyarrow 26 reads invalid memory when it casts some lists to lists of a fixed size (all NULL, read from IPC), and Lance
panics when it writes a slice of a struct in a struct, or decimals read from IPC. So nothing else in this package casts
nested columns, and such rows are copied here before Lance gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.native.type_cache import type_cache

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)
_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)

Convert = Callable[[pa.Array], pa.Array]
"""Returns as many values of another type."""

_WIDE_BITS = 32
_ALIGNED = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
_LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)

IN_PLACE_OF_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""The types that hold all values of unsigned integers for what has none, such as Spark."""


def cast(values: _Values, wanted: pa.DataType) -> _Values:
    """Cast values, nested ones part by part; the same errors as a checked cast of pyarrow.

    Dictionaries, run-end encoding, views and extension types are dissolved where ``wanted`` does not have them. Struct
    fields are found by name and must be the same on both sides.

    Raises:
        pa.ArrowInvalid: A value does not fit, for example a list of another length.
        pa.ArrowNotImplementedError: The types have no such cast.
    """
    if values.type == wanted:
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, wanted) for chunk in values.chunks], wanted)
    return _cast(values, wanted)


def cast_lists(array: pa.Array, wanted: pa.DataType, convert: Convert) -> pa.Array:
    """Return lists whose items are converted; errors as for ``cast``."""
    if pa.types.is_fixed_size_list(wanted):
        return _as_vectors(array, wanted, convert)
    return _as_lists(array, wanted, convert)


def cast_maps(array: pa.Array, wanted: pa.DataType, convert: Convert) -> pa.Array:
    """Return maps whose values are converted, and whose keys are cast; errors as for ``cast``."""
    lists = _entries(array)
    kept = lists.flatten()
    return pa.MapArray.from_arrays(
        _offsets(lists).cast(pa.int32()),
        _cast(kept.field(0), wanted.key_type),
        convert(kept.field(1)),
        type=wanted,
        mask=array.is_null() if array.null_count else None,
    )


def cast_rows(rows: _Rows, schema: pa.Schema) -> _Rows:
    """Cast all columns, which have the names and the order of ``schema``; errors as for ``cast``.

    Raises:
        ValueError: The columns are not those of ``schema``.
    """
    if rows.schema.names != schema.names:
        raise ValueError(f"the columns {rows.schema.names} are not {schema.names}")
    columns = [cast(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows; unlike Arrow's own, also with extension types inside of values."""
    return pa.Table.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def is_list(kind: pa.DataType) -> bool:
    """Return whether values of a type are lists, in any of Arrow's layouts; maps are not."""
    return any(is_kind(kind) for is_kind in _LISTS)


def unwrapped(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values behind dictionaries, run-end encoding and extension types."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def has_forbidden_null(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether there is a NULL inside of a value, where a nested field does not allow it."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    if not _forbids_null(values.type):
        return False
    plain = _without_extensions(values.type)  # Arrow drops no NULLs where extension types are inside of values.
    return any(_has_forbidden_null(_cast(chunk, plain)) for chunk in chunks)


@type_cache(1024)  # Every put asks for each of its columns.
def has_narrow_dictionary(kind: pa.DataType) -> bool:
    """Return whether values of a type have a dictionary whose indices have fewer than 32 bits.

    Lance makes one dictionary of all that one file has. Where that has more values than the indices can number, Lance
    14.0.2 writes a file, without an error, that nobody can read.
    """
    return any(each.index_type.bit_width < _WIDE_BITS for each in _dictionaries(kind))


def compact_rows(rows: pa.Table) -> pa.Table:
    """Return the rows with their own aligned copy of every column that has structs or decimals inside.

    A slice shares the buffers of the whole and only says where it begins; Lance's writers forget that for the parts of
    a struct in a struct. And they want decimals at multiples of 16 bytes, while IPC aligns to 8. Other columns stay as
    they are.
    """
    return _copied(rows, [number for number, kind in enumerate(rows.schema.types) if _is_delicate(kind)], _ALIGNED)


def owned(rows: pa.Table) -> pa.Table:
    """Return rows that have been through ``compact_rows`` with their own copy of the other columns, too.

    Whoever made a batch may change its memory later, such as a NumPy array that Arrow only refers to, and a slice keeps
    the whole alive.
    """
    return _copied(rows, [number for number, kind in enumerate(rows.schema.types) if not _is_delicate(kind)])


def trimmed(rows: pa.Table) -> pa.Table:
    """Return the rows with dictionaries that have no value but those of the rows.

    A slice keeps the dictionary of the whole, which would be copied and stored with each part of a batch.
    """
    for number, kind in enumerate(rows.schema.types):
        if pa.types.is_dictionary(kind):
            column = pa.chunked_array([_trimmed(chunk) for chunk in rows.column(number).chunks], kind)
            rows = rows.set_column(number, rows.schema.field(number), column)
    return rows


def _trimmed(array: pa.DictionaryArray) -> pa.DictionaryArray:
    if pa.types.is_string_view(array.type.value_type) or pa.types.is_binary_view(array.type.value_type):
        return array  # pyarrow cannot take values of views.
    used = np.unique(np.asarray(array.indices.drop_null()))
    if len(used) == len(array.dictionary):
        return array
    kept = pa.array(used, array.type.index_type)
    indices = pc.index_in(array.indices, value_set=kept, skip_nulls=True).cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary.take(kept), ordered=array.type.ordered)


def compact_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return one batch as ``compact_rows`` does."""
    [copied] = compact_rows(pa.Table.from_batches([batch])).to_batches() or [batch]
    return copied


def _copied(rows: pa.Table, numbers: Sequence[int], options: pa.ipc.IpcReadOptions | None = None) -> pa.Table:
    """Return the rows with copies of some columns."""
    if not numbers or not rows.num_rows:
        return rows
    chosen = rows.select(numbers)
    if options is None and not any(map(_dictionaries, chosen.schema.types)):
        # Into memory of their size, without a schema, whose message takes longer than a few rows.
        batches = [pa.ipc.read_record_batch(batch.serialize(), chosen.schema) for batch in chosen.to_batches()]
        copied = pa.Table.from_batches(batches, chosen.schema)
    else:
        copied = _through_stream(chosen, options)
    columns = list(rows.columns)
    for number, column in zip(numbers, copied.columns, strict=True):
        columns[number] = column
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _through_stream(rows: pa.Table, options: pa.ipc.IpcReadOptions | None) -> pa.Table:
    def write(sink: pa.NativeFile) -> None:
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)

    size = pa.MockOutputStream()
    write(size)
    # A buffer that grows by doubling would keep up to twice as much.
    memory = pa.allocate_buffer(size.size())
    write(pa.FixedSizeBufferWriter(memory))
    return pa.ipc.open_stream(memory, options=options).read_all()


@type_cache(1024)
def _dictionaries(kind: pa.DataType) -> tuple[pa.DictionaryType, ...]:
    """Return the types of dictionaries in values of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _dictionaries(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return (kind, *_dictionaries(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return _dictionaries(kind.value_type)
    return tuple(each for field in _inner_fields(kind) for each in _dictionaries(field.type))


def _inner_fields(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if is_list(kind) else []


@type_cache(1024)  # Every put asks for each of its columns.
def _forbids_null(kind: pa.DataType) -> bool:
    return any(not field.nullable or _forbids_null(field.type) for field in _inner_fields(unwrapped(kind)))


def _without_extensions(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _without_extensions(kind.storage_type)
    inner = [field.with_type(_without_extensions(field.type)) for field in _inner_fields(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    if pa.types.is_map(kind):
        return pa.map_(*inner, kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(*inner, kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(*inner)
    return pa.list_(*inner) if pa.types.is_list(kind) else kind


def _parts(array: pa.Array) -> list[pa.Array]:
    """Return the values inside of nested ones that are not NULL, for each of ``_inner_fields``."""
    if pa.types.is_struct(array.type):
        return list(array.drop_null().flatten())
    if pa.types.is_map(array.type):
        return list(_entries(array).flatten().flatten())
    return [array.flatten()] if is_list(array.type) else []


def _has_forbidden_null(array: pa.Array) -> bool:
    array = _dissolved(array)
    return any(
        (not field.nullable and part.null_count > 0) or _has_forbidden_null(part)
        for field, part in zip(_inner_fields(array.type), _parts(array), strict=True)
    )


@type_cache(1024)  # Every put asks for each of its columns.
def _is_delicate(kind: pa.DataType) -> bool:
    kind = unwrapped(kind)
    if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_decimal(kind):
        return True
    return is_list(kind) and _is_delicate(kind.value_type)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if isinstance(wanted, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(wanted, _cast(array, wanted.storage_type))
    array = _dissolved(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if pa.types.is_dictionary(wanted):
        return _as_dictionary(_cast(array, wanted.value_type), wanted)
    if pa.types.is_nested(wanted) or pa.types.is_nested(array.type):
        return _cast_nested(array, wanted)
    return array.cast(wanted)


def _cast_nested(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if is_list(wanted) and is_list(array.type):
        return cast_lists(array, wanted, lambda items: _cast(items, wanted.value_type))
    if pa.types.is_struct(wanted) and pa.types.is_struct(array.type):
        return _as_structs(array, wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        return cast_maps(array, wanted, lambda items: _cast(items, wanted.item_type))
    raise pa.ArrowNotImplementedError(f"no cast from {array.type} to {wanted}")


def _dissolved(array: pa.Array) -> pa.Array:
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = _repeatable(array.dictionary).take(array.indices)
        elif pa.types.is_run_end_encoded(array.type):
            array = _from_runs(array)
        else:
            return array


def _from_runs(array: pa.Array) -> pa.Array:
    """Return a value for each row; unlike Arrow's own decoder, whatever the type of the values."""
    rows = np.arange(array.offset, array.offset + len(array))
    runs = np.searchsorted(np.asarray(array.run_ends), rows, "right")
    return _repeatable(array.values).take(pa.array(runs))


def _repeatable(values: pa.Array) -> pa.Array:
    """Return values in a form of which rows can be taken, which pyarrow cannot of views."""
    values = _dissolved(values)
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def _as_dictionary(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    encoded = values.dictionary_encode()
    indices = encoded.indices.cast(wanted.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=wanted.ordered)


def _as_vectors(array: pa.Array, wanted: pa.DataType, convert: Convert) -> pa.Array:
    size = wanted.list_size
    lengths = pc.unique(pc.list_value_length(array).drop_null()).to_pylist()
    if any(length != size for length in lengths) or size == 0:
        raise pa.ArrowInvalid(f"lists of {lengths[:5]} values are not lists of {size}")
    items = convert(array.flatten())
    if not array.null_count:
        return pa.FixedSizeListArray.from_arrays(items, type=wanted)
    is_null = array.is_null()
    present = ~np.asarray(is_null)
    places = np.zeros((len(array), size), dtype=np.int64)
    places[present] = np.arange(len(items), dtype=np.int64).reshape(-1, size)
    absent = np.repeat(~present, size)
    return pa.FixedSizeListArray.from_arrays(
        items.take(pa.array(places.reshape(-1), mask=absent)), type=wanted, mask=is_null
    )


def _as_lists(array: pa.Array, wanted: pa.DataType, convert: Convert) -> pa.Array:
    if pa.types.is_list_view(wanted) or pa.types.is_large_list_view(wanted):
        raise pa.ArrowNotImplementedError(f"no cast from {array.type} to {wanted}")
    layout, width = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(wanted) else (pa.ListArray, pa.int32())
    items = convert(array.flatten())
    mask = array.is_null() if array.null_count else None
    return layout.from_arrays(_offsets(array).cast(width), items, type=wanted, mask=mask)


def _as_structs(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    found = [field.name for field in array.type]
    names = [field.name for field in wanted]
    if sorted(found) != sorted(names) or len(set(names)) != len(names) or not names:
        raise pa.ArrowNotImplementedError(f"no cast from {array.type} to {wanted}")
    merged = array.flatten()
    children = []
    for field in wanted:
        place = found.index(field.name)
        # Below a NULL, the values of a field that allows none stay as they are.
        children.append(_cast(merged[place] if field.nullable else array.field(place), field.type))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null() if array.null_count else None)


def _entries(array: pa.Array) -> pa.Array:
    """Return maps as lists of structs with a key and an item, both without extension types."""
    plain = [_cast(each, _without_extensions(each.type)) for each in (array.keys, array.items)]
    entries = pa.StructArray.from_arrays(plain, names=["key", "value"])
    offsets = pa.array(np.asarray(array.offsets))
    return pa.ListArray.from_arrays(offsets, entries, mask=array.is_null() if array.null_count else None)


def _offsets(lists: pa.Array) -> pa.Array:
    """Return where each list begins among the flattened items of all, and where the last one ends."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), dtype=np.int64)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
