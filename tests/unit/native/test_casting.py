"""Casts that agree with pyarrow where pyarrow survives, and survive where it does not."""

from __future__ import annotations

import signal
import subprocess
import sys
from decimal import Decimal

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from memwal_core.base_table import translated
from memwal_core.errors import InternalError
from memwal_core.native.casting import cast, cast_rows, compact_rows, has_forbidden_null, owned, trimmed
from memwal_core.native.panics import NativePanicError, panics_raised

VECTOR = pa.list_(pa.float32(), 2)
_ALL_NULL_FROM_IPC = """
import pyarrow as pa
from memwal_core.native.casting import cast
sink = pa.BufferOutputStream()
rows = pa.table({"v": pa.array([None, None], pa.list_(pa.float32()))})
with pa.ipc.new_stream(sink, rows.schema) as writer:
    writer.write_table(rows)
column = pa.ipc.open_stream(sink.getvalue()).read_all().column(0)
wanted = pa.list_(pa.float32(), 4)
"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)


def test_s8_control_pyarrow_crashes_on_lists_of_nothing_but_null_read_from_ipc() -> None:
    assert _run(f"{_ALL_NULL_FROM_IPC}column.cast(wanted)").returncode == -signal.SIGSEGV


def test_s8_lists_of_nothing_but_null_read_from_ipc_become_null_vectors() -> None:
    done = _run(f"{_ALL_NULL_FROM_IPC}print(cast(column, wanted).to_pylist())")
    assert (done.returncode, done.stdout.strip()) == (0, "[None, None]")


NESTED = pa.struct([("in", pa.struct([("v", pa.int32()), ("t", pa.string())])), ("k", pa.list_(pa.int8()))])
_NESTED_VALUES = [
    {"in": {"v": 1, "t": "a"}, "k": [1, 2]},
    None,
    {"in": None, "k": None},
    {"in": {"v": None, "t": "b"}, "k": []},
    {"in": {"v": 5, "t": None}, "k": [None, 3]},
]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32())), VECTOR),
        (pa.array([None, [1.0, 2.0], None], pa.large_list(pa.float64())), VECTOR),
        (pa.array([[1.0, 2.0], None], pa.list_view(pa.float32())), VECTOR),
        (pa.array([[1.0, 2.0], None], VECTOR), pa.list_(pa.float64())),
        (pa.array([[1.0, 2.0], None], VECTOR), pa.list_(pa.float64(), 2)),
        (pa.array([[[1.0, 2.0], None], None, []], pa.list_(pa.list_(pa.float32()))), pa.large_list(VECTOR)),
        (pa.array([None, None]), NESTED),
        (pa.array([None, None]), VECTOR),
        (pa.array([["a"], None, [None]], pa.list_(pa.string())), pa.list_(pa.large_string())),
        (pa.array(["a", None, "b"]).dictionary_encode(), pa.large_string()),
        (pa.array(["a", None, "b"]), pa.dictionary(pa.int8(), pa.string())),
        (pa.array(["a", None, "b"], pa.string_view()).dictionary_encode(), pa.string()),
        (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None])), pa.string()),
        (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None], pa.string_view())), pa.string()),
        (pa.RunEndEncodedArray.from_arrays([2, 4], pa.array(["a", None, "a"]).dictionary_encode()[:2]), pa.string()),
        (pa.RunEndEncodedArray.from_arrays([1, 3, 9], pa.array([[1.0, 2.0], None, [3.0, 4.0]])), VECTOR),
        (pa.RunEndEncodedArray.from_arrays([3], pa.array([{"a": 1}])), pa.struct([("a", pa.int8())])),
        (pa.array([["a", "b"], None], pa.list_(pa.string_view())), pa.list_(pa.string(), 2)),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.array([b"a", None], pa.binary_view()), pa.large_binary()),
        (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int8())), pa.map_(pa.large_string(), pa.int64())),
        (pa.array([1, None], pa.int8()), pa.int64()),
        (pa.array([{"a": [1.0, 2.0]}, None], pa.struct([("a", pa.list_(pa.float32()))])), pa.struct([("a", VECTOR)])),
    ],
    ids=lambda each: str(each if isinstance(each, pa.DataType) else each.type)[:40],
)  # fmt: skip
def test_s8_values_survive_a_cast_whole_and_in_slices(values: pa.Array, wanted: pa.DataType) -> None:
    for start in range(len(values) + 1):
        part = values.slice(start)
        found = cast(part, wanted)
        found.validate(full=True)
        assert found.type == wanted
        assert found.to_pylist() == part.to_pylist()
    chunked = pa.chunked_array([values.slice(0, 1), values.slice(0, 0), values.slice(1)])
    assert cast(chunked, wanted).to_pylist() == values.to_pylist()
    assert cast(pa.chunked_array([], values.type), wanted).type == wanted


@pytest.mark.parametrize(
    ("values", "wanted", "error"),
    [
        (pa.array([[1.0]], pa.list_(pa.float32())), VECTOR, pa.ArrowInvalid),
        (pa.array([[1.0, 2.0, 3.0], None], pa.list_(pa.float32())), VECTOR, pa.ArrowInvalid),
        (pa.array([300]), pa.int8(), pa.ArrowInvalid),
        (pa.array([str(each) for each in range(200)]), pa.dictionary(pa.int8(), pa.string()), pa.ArrowInvalid),
        (pa.array(["a"]), VECTOR, pa.ArrowNotImplementedError),
        (pa.array([{"a": 1}]), pa.struct([("b", pa.int64())]), pa.ArrowNotImplementedError),
        (pa.array([{"a": 1}]), pa.int64(), pa.ArrowNotImplementedError),
    ],
    ids=str,
)
def test_s8_values_that_do_not_fit_are_refused(values: pa.Array, wanted: pa.DataType, error: type[Exception]) -> None:
    with pytest.raises(error):
        cast(values, wanted)


def test_s8_fields_of_structs_are_found_by_name() -> None:
    found = cast(pa.array([{"a": 1, "b": "x"}]), pa.struct([("b", pa.large_string()), ("a", pa.int64())]))
    assert found.to_pylist() == [{"b": "x", "a": 1}]


def test_s8_extension_types_are_dissolved_and_made() -> None:
    uuids = pa.array([b"\x01" * 16, None], pa.uuid())
    assert cast(uuids, pa.binary()).to_pylist() == [b"\x01" * 16, None]
    assert cast(pa.array([b"\x01" * 16, None], pa.binary(16)), pa.uuid()).type == pa.uuid()


def test_rows_with_other_columns_are_not_cast() -> None:
    with pytest.raises(ValueError, match="are not"):
        cast_rows(pa.table({"a": [1]}), pa.schema([("b", pa.int64())]))


def _write(rows: pa.Table, path: str) -> None:
    with LanceFileWriter(path, rows.schema, version="2.2") as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)


def test_s8_a_sliced_struct_in_a_struct_panics_in_lance_unless_compact(tmp_path) -> None:
    rows = pa.table({"n": pa.array(_NESTED_VALUES * 4, NESTED)}).slice(3, 9)
    with pytest.raises(NativePanicError), panics_raised():
        _write(rows, str(tmp_path / "sliced.lance"))
    copied = compact_rows(rows)
    _write(copied, str(tmp_path / "compact.lance"))
    assert copied.to_pylist() == rows.to_pylist()
    assert (
        lance.file.LanceFileReader(str(tmp_path / "compact.lance")).read_all().to_table().to_pylist()
        == rows.to_pylist()
    )


def test_s8_a_panic_becomes_an_error_of_this_package(tmp_path) -> None:
    rows = pa.table({"n": pa.array(_NESTED_VALUES * 4, NESTED)}).slice(3, 9)
    with pytest.raises(InternalError) as caught, translated("write", "t"):
        _write(rows, str(tmp_path / "sliced.lance"))
    assert "panicked" in str(caught.value.facts["reason"])


@pytest.mark.parametrize("is_nested", [False, True])
def test_s8_decimals_of_ipc_panic_in_lance_unless_compact(tmp_path, is_nested: bool) -> None:
    """IPC aligns buffers to 8 bytes, and Lance wants decimals at multiples of 16."""
    values = pa.array([Decimal(1), None, Decimal(3)], pa.decimal128(12, 3))
    column = pa.StructArray.from_arrays([values], names=["d"]) if is_nested else values
    found = 0
    for width in range(1, 5):  # One of the widths before it moves the column off its place.
        rows = pa.table({**{f"a{number}": [True] * 3 for number in range(width)}, "d": column})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema.with_metadata({"padding": "x" * 8 * width})) as writer:
            writer.write_table(rows.replace_schema_metadata({"padding": "x" * 8 * width}))
        read = pa.ipc.open_stream(sink.getvalue()).read_all()
        try:
            with panics_raised():
                lance.write_dataset(read, str(tmp_path / f"raw {width}"))
        except NativePanicError:
            found += 1
        made = lance.write_dataset(compact_rows(read), str(tmp_path / f"compact {width}"))
        assert made.to_table().to_pylist() == rows.to_pylist()
    assert found, "the control: some of these rows panic as they are"


def test_columns_without_structs_are_not_copied() -> None:
    rows = pa.table({"v": pa.array([[1.0, 2.0]], VECTOR), "n": np.arange(1)})
    assert compact_rows(rows) is rows


@pytest.mark.parametrize(
    ("kind", "value", "is_forbidden"),
    [
        (pa.list_(pa.field("item", pa.int8(), nullable=False)), [1, None], True),
        (pa.list_(pa.field("item", pa.int8(), nullable=False)), [1], False),
        (pa.list_(pa.int8()), [None], False),
        (pa.struct([pa.field("a", pa.int8(), nullable=False)]), {"a": None}, True),
        (pa.struct([pa.field("a", pa.struct([pa.field("b", pa.int8(), nullable=False)]))]), {"a": {"b": None}}, True),
        (pa.struct([pa.field("a", pa.struct([pa.field("b", pa.int8(), nullable=False)]))]), {"a": None}, False),
        (pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False)), [("a", None)], True),
        (pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False)), [("a", 1)], False),
    ],
    ids=str,
)
def test_s8_nulls_that_a_nested_field_does_not_allow_are_found(
    kind: pa.DataType, value: object, is_forbidden: bool
) -> None:
    assert has_forbidden_null(pa.array([None, value], kind)) is is_forbidden


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("codes", [[5, 2, None, 5], [None, None], []])
def test_trimmed_rows_keep_their_values_and_no_others(codes: list[int | None], ordered: bool) -> None:
    dictionary = pa.array(["a", "b", "c", "d", "e", "f"])
    column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), dictionary, ordered=ordered)
    rows = pa.table({"id": range(len(codes)), "n": column}).replace_schema_metadata({"k": "v"})

    found = trimmed(rows)

    assert found.schema.equals(rows.schema, check_metadata=True)
    assert found.to_pylist() == rows.to_pylist()
    [chunk] = found.column("n").chunks
    assert chunk.dictionary.to_pylist() == sorted({dictionary[code].as_py() for code in codes if code is not None})


def test_a_dictionary_of_views_stays_as_it_is() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a", "b"], pa.string_view()))
    rows = pa.table({"n": column})
    assert trimmed(rows).equals(rows)


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_copy_takes_no_more_memory_than_the_rows(is_dictionary: bool) -> None:
    """It took the next power of two: a writer held up to twice what its bound said."""
    rows = pa.table({"v": pa.array(np.arange(70_000)), "text": [f"{number:09}" for number in range(70_000)]})
    if is_dictionary:
        rows = rows.append_column("kind", pa.array(["a", "b"] * 35_000).dictionary_encode())
    before = pa.total_allocated_bytes()

    copied = owned(rows)

    assert copied.equals(rows)
    assert pa.total_allocated_bytes() - before <= 1.05 * rows.nbytes


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.list_(pa.string()),
        pa.list_(pa.string(), 2),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string())),
        pa.json_(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.null(),
    ],
    ids=str,
)
def test_copy_of_a_slice_shares_no_memory_with_it(kind: pa.DataType) -> None:
    texts = [f"{number:020}" for number in range(6)]
    plain = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_map(kind):
        values: list[object] = [[(each, each)] for each in texts]
    elif pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind):
        values = [[each, each] for each in texts]
    else:
        values = [None] * 6 if pa.types.is_null(kind) else list(texts)
    column = pa.array(values, plain)
    rows = pa.table({"v": pa.ExtensionArray.from_storage(kind, column) if plain is not kind else column}).slice(1, 4)

    copied = owned(compact_rows(rows))

    copied.validate(full=True)
    assert copied.equals(rows)
    assert not _buffers(copied) & _buffers(rows)


def _buffers(rows: pa.Table) -> set[int]:
    chunks = [chunk for column in rows.columns for chunk in column.chunks]
    plain = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in chunks]
    return {buffer.address for chunk in plain for buffer in chunk.buffers() if buffer is not None and buffer.size}
