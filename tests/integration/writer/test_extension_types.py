"""Columns of extension types, also of those that Python defines, from the first put to the last read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lance.arrow import BFloat16Type, EncodedImageType, FixedShapeImageTensorType, ImageURIType

import memwal_core
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.native.casting import cast

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
