"""Which primary keys MemWAL can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from memwal_core.base_table.keys.primary_key import (
    PrimaryKey,
    check_primary_key,
    is_key_type,
    primary_key_of,
    require_plain_names,
)
from memwal_core.errors import CorruptionError, InvalidRequestError


@dataclass(frozen=True)
class SchemaField:
    """A Lance schema field as pylance shows it."""

    label: str
    number: int
    is_key: bool = False
    position: int | None = None
    inner: Sequence[SchemaField] = ()

    def name(self) -> str:
        return self.label

    def id(self) -> int:
        return self.number

    def children(self) -> Sequence[SchemaField]:
        return self.inner

    def is_unenforced_primary_key(self) -> bool:
        return self.is_key

    def unenforced_primary_key_position(self) -> int | None:
        return self.position


@pytest.mark.req("FMT-48")
def test_key_columns_come_in_schema_order_without_positions() -> None:
    fields = [SchemaField("v", 0), SchemaField("b", 1, True), SchemaField("a", 2, True)]

    assert primary_key_of(fields) == PrimaryKey(("b", "a"), (1, 2))


def test_positions_decide_the_order_of_key_columns() -> None:
    fields = [SchemaField("a", 0, True, 2), SchemaField("b", 4, True, 1)]

    assert primary_key_of(fields) == PrimaryKey(("b", "a"), (4, 0))


@pytest.mark.req("FMT-48")
def test_schema_without_key_has_no_key_columns_and_is_refused() -> None:
    key = primary_key_of([SchemaField("v", 0)])

    assert key == PrimaryKey((), ())
    with pytest.raises(InvalidRequestError, match="defines no primary key"):
        check_primary_key(pa.schema([pa.field("v", pa.int64())]), key)


def test_nested_key_is_found_and_refused() -> None:
    key = primary_key_of([SchemaField("s", 0, inner=[SchemaField("id", 1, True)])])

    assert key.columns == ("s.id",)
    with pytest.raises(InvalidRequestError, match="nested in another column"):
        check_primary_key(pa.schema([pa.field("s", pa.struct([pa.field("id", pa.int64())]))]), key)


def test_nullable_key_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="may hold NULL"):
        check_primary_key(pa.schema([pa.field("id", pa.int64())]), PrimaryKey(("id",), (0,)))


@pytest.mark.parametrize(
    "data_type",
    [pa.date32(), pa.timestamp("us"), pa.binary(16), pa.float64(), pa.decimal128(10, 2), pa.time64("us")],
)
def test_key_type_that_lance_cannot_hash_is_refused(data_type: pa.DataType) -> None:
    schema = pa.schema([pa.field("id", data_type, nullable=False)])

    with pytest.raises(InvalidRequestError, match="cannot be a primary key"):
        check_primary_key(schema, PrimaryKey(("id",), (0,)))


@pytest.mark.parametrize(
    "data_type",
    [
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
    ],
)
def test_key_type_that_lance_hashes_is_accepted(data_type: pa.DataType) -> None:
    assert is_key_type(data_type)


def test_s8_a_key_column_that_lance_cannot_name_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="cannot name"):
        check_primary_key(pa.schema([pa.field("a`b", pa.int64(), nullable=False)]), PrimaryKey(("a`b",), (0,)))


@pytest.mark.parametrize("names", [["id", "name", "id"], ["id", "na\0me"]])
def test_names_that_no_program_of_good_faith_gives_are_corruption(names: list[str]) -> None:
    schema = pa.schema([pa.field(name, pa.int64()) for name in names])
    with pytest.raises(CorruptionError, match="names of their own"):
        require_plain_names(schema, 3)
