import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.flushed.write import directory, field_layout
from memwal_core.flushed.write.flush_plan import FlushPlan
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


def _layout(table: lance.LanceDataset):
    schema = memtable_schema(table.schema, ["id"])
    return field_layout(table.lance_schema.fields(), schema, table.data_storage_version)


@pytest.mark.req("FMT-20")
def test_contiguous_ids_need_no_placeholder_and_the_tombstone_comes_last(tmp_path: Path) -> None:
    layout = _layout(_table(tmp_path))
    assert layout.placeholders == ()
    assert dict(layout.field_ids) == {"id": 0, "vec": 1, "s": 2, "v": 6, "_tombstone": 7}
    assert layout.file_fields == (0, 1, 3, 5, 6, 7)
    assert layout.file_columns == tuple(range(6))


@pytest.mark.req("FMT-20")
def test_dropped_columns_leave_placeholders_at_their_ids(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.drop_columns(["vec"])
    layout = _layout(table)
    assert dict(layout.field_ids) == {"id": 0, "s": 2, "v": 6, "_tombstone": 7}
    assert layout.table_schema.names == ["id", *layout.placeholders, "s", "v", "_tombstone"]
    assert len(layout.placeholders) == 1


def test_ids_that_do_not_ascend_are_refused_with_the_column(tmp_path: Path) -> None:
    table = _table(tmp_path)
    fields = list(table.lance_schema.fields())
    swapped = [fields[0], fields[3], fields[1], fields[2]]
    schema = memtable_schema(pa.schema([NESTED.field(i) for i in (0, 3, 1, 2)]), ["id"])
    with pytest.raises(InvalidRequestError) as caught:
        field_layout(swapped, schema, table.data_storage_version)
    assert caught.value.facts["column"] == "vec"


class _Field:
    """A column of a manifest that somebody wrote by hand."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._number = name, number

    def name(self) -> str:
        return self._name

    def id(self) -> int:
        return self._number

    def children(self) -> list["_Field"]:
        return []


def test_field_id_far_away_is_refused_instead_of_filled_up_to() -> None:
    schema = memtable_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]), ["id"])
    with pytest.raises(InvalidRequestError, match="too large a gap"):
        field_layout([_Field("id", 2**31 - 10)], schema, "2.0")


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

    assert caught.value.facts["expected"] == layout.field_ids
