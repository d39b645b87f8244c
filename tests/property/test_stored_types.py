"""Rows of any type, cut and encoded in any way, are read back as they are, or refused before anything is written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA

FAST = Settings(storage=StorageSettings(fsync=False, retry_wait_s=0), writer=WriterSettings(background_flush=False))
KEY = pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA)

LEAVES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=4),
    pa.large_binary(): st.binary(max_size=4),
    pa.decimal128(12, 3): st.decimals(-1000, 1000, places=3),
    pa.timestamp("us", "Europe/Berlin"): st.datetimes().map(lambda each: each.replace(year=2020)),
    pa.date32(): st.dates(),
}


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), _present(kind))


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    if pa.types.is_map(kind):
        return st.dictionaries(st.text("abc", max_size=2), _values(kind.item_type), max_size=2).map(
            lambda each: list(each.items())
        )
    if pa.types.is_fixed_size_list(kind):
        return st.lists(_values(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.lists(_values(kind.value_type), max_size=3)
    return LEAVES[kind]


def _wrapped(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda kinds: pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])
        ),
    )


TYPES = st.recursive(st.sampled_from(list(LEAVES)), _wrapped, max_leaves=3)


def _as_it_is(column: pa.Array) -> pa.Array:
    return column


def _from_ipc(column: pa.Array) -> pa.Array:
    rows, sink = pa.table({"c": column}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all().column(0).combine_chunks()


def _as_dictionary(column: pa.Array) -> pa.Array:
    is_flat = not pa.types.is_nested(column.type)
    return column.dictionary_encode() if is_flat else column


def _as_runs(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        return column
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(column) + 1), pa.int32()), column)


def _as_views(column: pa.Array) -> pa.Array:
    """Return texts and bytes as Polars hands them over."""
    if pa.types.is_string(column.type):
        return column.cast(pa.string_view())
    return column.cast(pa.binary_view()) if pa.types.is_large_binary(column.type) else column


def _as_looser_lists(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return pa.array(column.to_pylist(), pa.list_(kind.value_type))
    return column


def _without_type(column: pa.Array) -> pa.Array:
    return pa.nulls(len(column)) if column.null_count == len(column) else column


def _behind_others(column: pa.Array) -> pa.Array:
    """Return the column as a slice that begins behind other values."""
    return pa.concat_arrays([column.slice(0, 1), column, column.slice(0, 1)]).slice(1, len(column))


ENCODINGS: list[Callable[[pa.Array], pa.Array]] = [
    _as_it_is, _from_ipc, _as_views, _as_dictionary, _as_runs, _as_looser_lists, _without_type, _behind_others,
]  # fmt: skip


@st.composite
def _batches(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, str]:
    """Draw rows, the same rows in another encoding, and the storage version of their table."""
    kinds = draw(st.lists(TYPES, min_size=1, max_size=2))
    count = draw(st.integers(1, 9))
    fields = [KEY, *(pa.field(f"c{number}", kind) for number, kind in enumerate(kinds))]
    columns = [pa.array(range(count), pa.int64())]
    for kind in kinds:
        nothing = draw(st.booleans()) and draw(st.booleans())
        values = [None] * count if nothing else draw(st.lists(_values(kind), min_size=count, max_size=count))
        columns.append(pa.array(values, kind))
    rows = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    cut = draw(st.integers(0, count))
    encoded = []
    for column in columns:
        for encode in draw(st.lists(st.sampled_from(ENCODINGS), max_size=2)):
            column = encode(column)
        encoded.append(pa.chunked_array([column.slice(0, cut), column.slice(cut)]))
    return rows, pa.table(encoded, names=rows.column_names), draw(st.sampled_from(["2.0", "2.1", "2.2", "2.2"]))


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.sort_by("id").to_pylist() if rows.num_rows else []


@settings(derandomize=True, deadline=None, max_examples=40)
@given(drawn=_batches())
def test_s8_rows_of_any_type_and_encoding_are_stored_exactly_or_refused_whole(
    drawn: tuple[pa.Table, pa.Table, str],
) -> None:
    rows, encoded, version = drawn
    with tempfile.TemporaryDirectory() as directory:
        uri = str(Path(directory) / "t")
        try:
            lance.write_dataset(rows.schema.empty_table(), uri, data_storage_version=version)
        except (OSError, RuntimeError, ValueError):
            return  # Lance has no such table.
        base = BaseTable.open(uri, settings=FAST)
        base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 2)])
        with TableWriter.open(base) as writer:
            try:
                writer.put(encoded)
            except InvalidRequestError:
                assert not list(Path(uri).glob("_mem_wal/*/wal/*"))
                return
            own = MergedReader(BaseTable.open(uri), writers=lambda: list(writer.writers.values()))
            assert _sorted(own.view(Consistency.IN_PROCESS).scan().to_arrow()) == _sorted(rows)
            writer.flush()
        table = Table.open(uri, settings=FAST)
        assert _sorted(table.scan().to_arrow()) == _sorted(rows)
        table.run(MergeRequest())
        assert _sorted(lance.dataset(uri).to_table()) == _sorted(rows)
        assert _sorted(Table.open(uri, settings=FAST).scan().to_arrow()) == _sorted(rows)
