"""The tables of docs/types.md say what the code and Lance do."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table.keys.primary_key import is_key_type
from memwal_core.writer.admission.storable import unstorable_columns

PAGE = Path(__file__).parents[4] / "docs" / "types.md"
STRUCT = pa.struct([("a", pa.int32())])
KNOWN = [
    pa.int64(), pa.float32(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(4),
    pa.string_view(), pa.binary_view(), pa.decimal128(9, 2), pa.decimal256(50, 2), pa.decimal32(5, 1),
    pa.decimal64(10, 1), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us", "UTC"),
    pa.timestamp("ns"), pa.duration("s"), pa.month_day_nano_interval(), pa.null(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.float32(), 4), pa.list_(pa.string(), 2), pa.list_(STRUCT, 2), pa.list_(pa.string()),
    pa.large_list(pa.int8()), pa.list_view(pa.int8()), STRUCT, pa.map_(pa.string(), pa.int64()), pa.uuid(),
    pa.json_(), pa.struct([]), pa.struct([("u", pa.uuid())]),
]  # fmt: skip
TYPES = {"extension<arrow.json>" if kind == pa.json_() else str(kind): kind for kind in KNOWN}


def _rows(title: str) -> list[list[str]]:
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


COLUMNS = [
    (name, version, cell)
    for kinds, *cells in _rows("Columns")
    for name in re.findall("`([^`]+)`", kinds)
    for version, cell in zip(("2.0", "2.1", "2.2"), cells, strict=True)
]


@pytest.mark.parametrize(("name", "version", "cell"), COLUMNS)
def test_s8_the_page_says_which_columns_lance_can_store(name: str, version: str, cell: str) -> None:
    found = unstorable_columns(pa.schema([pa.field("c", TYPES[name])]), version)
    assert cell.startswith("no" if found else "yes"), found


def test_s8_the_page_names_every_type_that_is_tried() -> None:
    assert {name for name, _, _ in COLUMNS} == set(TYPES)


KEYS = [(name, cell) for kinds, cell in _rows("Keys") for name in re.findall("`([^`]+)`", kinds)]
KEY_TYPES = {str(kind): kind for kind in [
    pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float64(),
    pa.timestamp("us"), pa.list_(pa.int8()),
]} | TYPES  # fmt: skip


@pytest.mark.parametrize(("name", "cell"), KEYS)
def test_s8_the_page_says_which_types_a_key_may_have(name: str, cell: str) -> None:
    assert is_key_type(KEY_TYPES[name]) is (cell == "yes")
