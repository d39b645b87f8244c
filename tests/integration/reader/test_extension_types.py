"""Columns of extension types, also of those that Python defines, from the first put to the last read."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.arrow import BFloat16Type, EncodedImageType, FixedShapeImageTensorType, ImageURIType

import memwal_core
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.native.casting import cast
from memwal_core.reader.scan.scan import ScanRequest
from testkit.tables.native_regions import native_region_id

PIXELS = pa.list_(pa.uint8(), 2)
KINDS = [
    (BFloat16Type(), pa.array([b"ab", None], pa.binary(2))),
    (ImageURIType(), pa.array(["file:///a.png", None])),
    (EncodedImageType(), pa.array([b"png", None], pa.binary())),
    (FixedShapeImageTensorType(pa.uint8(), [1, 2]), pa.array([[1, 2], None], PIXELS)),
    (pa.bool8(), pa.array([1, None], pa.int8())),
    (pa.uuid(), pa.array([bytes(16), None], pa.binary(16))),
]


def stored(rows: pa.Table) -> list[object]:
    column = rows.sort_by("id").column("v")
    return list(cast(column, column.type.storage_type).to_pylist())


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[kind.extension_name for kind, _ in KINDS])
def test_column_of_an_extension_type_is_written_read_and_merged(
    kind: pa.BaseExtensionType, values: pa.Array, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    table = memwal_core.create(str(tmp_path / "t"), schema, key="id", buckets=2)
    keys = pa.table({"id": [1, 2]})
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 3], "v": pa.ExtensionArray.from_storage(kind, values)}))
        writer.put(pa.table({"id": [2], "v": values.slice(0, 1)}))
        writer.delete(pa.table({"id": [3]}))
        assert stored(table.to_arrow()) == [values[0].as_py()] * 2
        writer.flush()
    assert stored(table.lookup(keys)) == [values[0].as_py()] * 2

    assert table.run(memwal_core.MergeRequest()).outcome is JobOutcome.DONE

    assert table.to_arrow().schema.field("v").type == kind
    assert stored(table.to_arrow()) == stored(table.lookup(keys)) == [values[0].as_py()] * 2


UUIDS = pa.array([bytes(16), b"b" * 16, None], pa.binary(16))
JSONS = pa.array(['{"a":1}', "[]", None])
INSIDE = [
    (pa.struct([("u", pa.uuid())]), pa.StructArray.from_arrays([UUIDS], ["u"])),
    (pa.struct([("j", pa.json_())]), pa.StructArray.from_arrays([JSONS], ["j"])),
    (pa.list_(pa.uuid()), pa.ListArray.from_arrays([0, 2, 3, 3], UUIDS)),
    (pa.list_(pa.json_()), pa.ListArray.from_arrays([0, 2, 3, 3], JSONS)),
    (pa.map_(pa.string(), pa.uuid()), pa.MapArray.from_arrays([0, 2, 3, 3], pa.array(["a", "b", "c"]), UUIDS)),
]
NOT_NATIVE = [INSIDE[1][0], INSIDE[3][0]]
"""pylance 14.0.2 takes no JSON in MemWAL writers."""


@pytest.mark.parametrize(("kind", "values"), INSIDE, ids=[str(kind) for kind, _ in INSIDE])
def test_table_with_extension_types_inside_of_values_is_read_and_merged(
    kind: pa.DataType, values: pa.Array, tmp_path: Path
) -> None:
    uri, column = str(tmp_path / "t"), cast(values, kind)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", kind)])
    lance.write_dataset(pa.table({"id": [1, 2, 3], "v": column}, schema=schema), uri)
    table = memwal_core.open(uri)
    table.enable(key="id", regions=1)

    def read_each_way(ids: list[int], every: int) -> None:
        assert table.lookup(pa.table({"id": [*ids, 9]})).column("id").to_pylist() == ids
        assert table.lookup(pa.table({"id": [9]})).schema.field("v").type == kind
        ordered = table.to_arrow(ScanRequest(order_by=(("id", "ascending"),), limit=every))
        assert ordered.column("id").to_pylist() == list(range(1, every + 1))
        assert (table.count(), table.count("id >= 2")) == (every, every - 1)

    read_each_way([1, 3], 3)
    if kind not in NOT_NATIVE:
        with lance.dataset(uri).mem_wal_writer(str(native_region_id(1))) as native:
            native.put(pa.table({"id": [3, 4, 5], "v": column}, schema=schema))
        read_each_way([1, 5], 5)
        assert table.run(memwal_core.MergeRequest()).outcome is JobOutcome.DONE
        read_each_way([1, 5], 5)


@pytest.mark.parametrize("kind", [kind for kind, _ in INSIDE], ids=[str(kind) for kind, _ in INSIDE])
def test_put_of_extension_types_inside_of_values_is_refused_by_their_columns(kind: pa.DataType, tmp_path: Path) -> None:
    table = memwal_core.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("v", kind)]), key="id")
    with table.writer() as writer, pytest.raises(InvalidRequestError) as refused:
        writer.put(pa.table({"id": [1, 2], "v": pa.nulls(2, kind)}))
    assert refused.value.facts["columns"] == ["v"]
