import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.flushed.write import directory, field_layout
from memwal_core.flushed.write.flush_plan import FlushPlan
from memwal_core.format.lance_field import all_ids, column_ids, numbered_schema
from memwal_core.ids import RegionId
from memwal_core.memtable import memtable_schema

NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("vec", pa.list_(pa.float32(), 2)),
        pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        pa.field("v", pa.string()),
    ]
)


def _table(path: Path, schema: pa.Schema = NESTED) -> lance.LanceDataset:
    return lance.write_dataset(schema.empty_table(), str(path / "t.lance"))


def _ids(table: lance.LanceDataset) -> list[tuple[int, ...]]:
    return list(column_ids(table.lance_schema.fields()).values())


def _layout(table: lance.LanceDataset):
    return field_layout(_ids(table), memtable_schema(table.schema, ["id"]), table.data_storage_version)


@pytest.mark.req("FMT-20")
def test_ids_that_lance_gives_by_itself_need_no_second_commit_and_the_tombstone_comes_last(tmp_path: Path) -> None:
    layout = _layout(_table(tmp_path))
    assert layout.has_first_ids
    assert layout.field_ids == {"id": 0, "vec": 1, "s": 2, "v": 6, "_tombstone": 7}
    assert layout.file_fields == (0, 1, 3, 5, 6, 7)
    assert layout.file_columns == tuple(range(6))


@pytest.mark.req("FMT-20")
def test_dropped_and_added_fields_leave_the_others_their_ids(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.drop_columns(["vec"])
    table.add_columns(pa.schema([pa.field("s", pa.struct([("c", pa.int8())]))]))
    table.drop_columns(["s.a"])
    layout = _layout(table)
    assert not layout.has_first_ids
    assert dict(layout.column_ids) == {"id": (0,), "s": (2, 4, 5, 7), "v": (6,), "_tombstone": (8,)}
    assert layout.file_fields == (0, 5, 7, 6, 8)


def test_numbered_schema_has_the_ids_and_all_else_of_the_schema() -> None:
    schema = NESTED.append(pa.field("m", pa.map_(pa.string(), pa.struct([("p", pa.int8())])))).with_metadata({"a": "b"})
    ids = [9, 3, 2**31 - 1, 8, 7, 6, 5, 14, 13, 12, 11, 10]
    found = numbered_schema(schema, ids)
    assert list(all_ids(found.fields())) == ids
    assert found.to_pyarrow().equals(schema, check_metadata=True)
    with pytest.raises(ValueError, match="zip"):
        numbered_schema(schema, ids[1:])


def test_a_base_table_that_leaves_the_tombstone_no_id_is_refused() -> None:
    schema = memtable_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]), ["id"])
    assert dict(field_layout([(2**31 - 2,)], schema, "2.0").column_ids)["_tombstone"] == (2**31 - 1,)
    with pytest.raises(InvalidRequestError, match="used up the field ids"):
        field_layout([(2**31 - 1,)], schema, "2.0")


@pytest.mark.req("FMT-20")
def test_flushed_memtable_with_other_field_ids_than_the_layout_is_refused(tmp_path: Path) -> None:
    """Readers and merges find columns by field id: values would silently belong to another column."""
    base = _table(tmp_path)
    base.drop_columns(["vec"])
    layout = _layout(base)
    flushed = lance.write_dataset(memtable_schema(base.schema, ["id"]).empty_table(), str(tmp_path / "flushed.lance"))
    plan = FlushPlan(RegionId(uuid.UUID(int=1)), 1, "00000000_gen_1", (), (), pa.table({}), 0, None, 0)

    with pytest.raises(InternalError) as caught:
        directory._check(flushed, plan, layout)

    assert caught.value.facts["expected"] == layout.column_ids
