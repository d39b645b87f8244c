"""Every value of every key type is found again, in memory, flushed, merged, and by a filter."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.rows import places
from memwal_core.reader.rows.key_condition import condition_on
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.view import TableView
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter

FAST = Settings(storage=StorageSettings(fsync=False, retry_wait_s=0), writer=WriterSettings(background_flush=False))
_ASKED_ALONE = 6
_ASKED_SEVERAL_TIMES = 6
"""So often that the keys are cached."""

TEXTS = [
    "",
    "\x00",
    "a\x00",
    "a\x00b",
    "a",
    "'",
    "a'b",
    "''",
    '"',
    "\\",
    "`",
    "\n",
    "%",
    "${x}",
    "$1",
    "--",
    "\U0001f600",
]
TEXTS += ["é", "e\u0301", "\uffff", " ", "a ", "X'00'", "NULL"]
BYTES = [b"", b"\x00", b"\x00\x00", b"a", b"a\x00", b"'", b"\xff" * 9]


def _integers(bits: int, *, is_signed: bool) -> tuple[list[int], st.SearchStrategy[int]]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return sorted({low, low + 1, 0, 1, high - 1, high}), st.integers(low, high)


_TEXT = (TEXTS, st.text(st.characters(codec="utf-8"), max_size=5))
_BINARY = (BYTES, st.binary(max_size=5))
KEYS: dict[pa.DataType, tuple[list[Any], st.SearchStrategy[Any]]] = {
    pa.int8(): _integers(8, is_signed=True), pa.int16(): _integers(16, is_signed=True),
    pa.int32(): _integers(32, is_signed=True), pa.int64(): _integers(64, is_signed=True),
    pa.uint8(): _integers(8, is_signed=False), pa.uint16(): _integers(16, is_signed=False),
    pa.uint32(): _integers(32, is_signed=False), pa.uint64(): _integers(64, is_signed=False),
    pa.bool_(): ([False, True], st.booleans()), pa.string(): _TEXT, pa.large_string(): _TEXT,
    pa.binary(): _BINARY, pa.large_binary(): _BINARY,
}  # fmt: skip
COMPOSITES = [(pa.int64(), pa.string()), (pa.bool_(), pa.binary()), (pa.large_string(), pa.uint64(), pa.int8())]


def _schema(kinds: tuple[pa.DataType, ...]) -> pa.Schema:
    fields = [
        pa.field(
            f"Key {number}",
            kind,
            nullable=False,
            metadata={
                "lance-schema:unenforced-primary-key": "true",
                "lance-schema:unenforced-primary-key:position": str(number + 1),
            },
        )
        for number, kind in enumerate(kinds)
    ]
    return pa.schema([*fields, pa.field("v", pa.int64())])


def _rows(schema: pa.Schema, keys: list[tuple[Any, ...]], first: int = 0) -> pa.Table:
    columns = [[key[number] for key in keys] for number in range(len(schema) - 1)]
    return pa.table([*columns, list(range(first, first + len(keys)))], schema=schema)


def _check(
    view: TableView, schema: pa.Schema, model: dict[tuple[Any, ...], int], absent: list[tuple[Any, ...]]
) -> None:
    names = schema.names[:-1]
    asked = _rows(schema, [*model, *absent]).select(names)
    found = view.lookup(asked).to_pylist()
    assert [(tuple(row[name] for name in names), row["v"]) for row in found] == list(model.items())
    scan = ScanRequest(filter_sql=condition_on(asked, names))
    assert sorted(view.scan(scan).to_arrow().column("v").to_pylist()) == sorted(model.values())
    for key, value in [*model.items(), *((each, None) for each in absent)][:_ASKED_ALONE]:
        one = _rows(schema, [key]).select(names)
        wanted = [value] if value is not None else []
        for _ in range(_ASKED_SEVERAL_TIMES if len(model) < 4 else 1):
            assert view.lookup(one).column("v").to_pylist() == wanted, key
        assert view.scan(ScanRequest(filter_sql=condition_on(one, names))).to_arrow().column("v").to_pylist() == wanted


def _run(kinds: tuple[pa.DataType, ...], keys: list[tuple[Any, ...]]) -> None:
    schema = _schema(kinds)
    keys = list(dict.fromkeys(keys))
    absent, present = keys[::4], [key for number, key in enumerate(keys) if number % 4]
    with tempfile.TemporaryDirectory() as directory:
        uri = str(Path(directory) / "t")
        lance.write_dataset(schema.empty_table(), uri)
        base = BaseTable.open(uri, settings=FAST)
        base.create_mem_wal_index([bucket_spec(1, schema.names[0], base.state().field_ids, 2)])
        with TableWriter.open(base) as writer:
            model = {}
            for part in (1, 2, 3):  # In the base table, flushed, in memory; every key that was there once more.
                rows = present[: max(1, len(present) * part // 3)]
                writer.put(_rows(schema, rows, part * 1000))
                model |= {key: part * 1000 + number for number, key in enumerate(rows)}
                if part < 3:
                    writer.flush()
                if part == 1:
                    Table.open(uri, settings=FAST).run(MergeRequest())
            reader = MergedReader(BaseTable.open(uri), writers=lambda: list(writer.writers.values()))
            _check(reader.view(Consistency.IN_PROCESS), schema, model, absent)
            writer.flush()
        _check(Table.open(uri, settings=FAST).view(), schema, model, absent)
        Table.open(uri, settings=FAST).run(MergeRequest())
        _check(Table.open(uri, settings=FAST).view(), schema, model, absent)
        assert lance.dataset(uri).count_rows() == len(model)


_NORMAL = {(pa.int64(), 1000), (pa.uint64(), 1000), (pa.bool_(), 1000), (pa.string(), 1000), (pa.binary(), 1000)}
_NORMAL |= {(pa.int64(), 0), (pa.string(), 0)}
"""What the normal suite tries: one type of each kind, and each way to read."""


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        pytest.param(
            kind,
            most,
            marks=() if (kind, most) in _NORMAL else (pytest.mark.slow,),
            id=f"{kind}-by {'condition' if most else 'scan'}",
        )
        for kind in KEYS
        for most in (1000, 0)
    ],
)
def test_s8_every_edge_value_of_a_key_type_is_found(
    kind: pa.DataType, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest 64-bit integer was read as a floating-point number."""
    monkeypatch.setattr(places, "asks_index", lambda _dataset, keys, _own: keys.num_rows <= most)
    edges, _ = KEYS[kind]
    for shift in (0, 2) if most else (0,):  # What is absent in one run is present in the other.
        _run((kind,), [(value,) for value in edges[shift:] + edges[:shift]])


@pytest.mark.parametrize("kinds", COMPOSITES, ids=str)
def test_s8_every_edge_value_of_a_composite_key_is_found(kinds: tuple[pa.DataType, ...]) -> None:
    edges = [KEYS[kind][0] for kind in kinds]
    most = max(map(len, edges))
    _run(
        kinds, [tuple(values[(number + at) % len(values)] for at, values in enumerate(edges)) for number in range(most)]
    )


_ALL = [*((kind,) for kind in KEYS), *COMPOSITES]


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=10)
@given(
    drawn=st.sampled_from(_ALL).flatmap(
        lambda kinds: st.tuples(
            st.just(kinds), st.lists(st.tuples(*(KEYS[kind][1] for kind in kinds)), min_size=2, max_size=9, unique=True)
        )
    )
)
@example(drawn=((pa.int64(),), [(0,), (-(2**63),)]))
def test_s8_any_keys_are_found(drawn: tuple[tuple[pa.DataType, ...], list[tuple[Any, ...]]]) -> None:
    _run(*drawn)
