"""No filter, however it is put together, leaves out a region that holds a row it lets through."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.ids import RegionId
from memwal_core.reader.plan.predicate import boxes_of
from memwal_core.reader.plan.pruning import RegionPruner
from memwal_core.reader.rows.in_memory import as_dataset
from memwal_core.region import RegionManifest, RegionStatus
from memwal_core.region.spec import RegionField, RegionRouter, RegionSpec, bucket_spec, encode_region_value

SCHEMA = pa.schema([("num", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us")), ("day", pa.date32())])
FIELD_IDS = {name: number for number, name in enumerate(SCHEMA.names)}
START = datetime(2023, 12, 30, tzinfo=UTC).replace(tzinfo=None)


def _spec(column: str, transform: str | None, result: str, **parameters: str) -> RegionSpec:
    return RegionSpec(1, (RegionField("f", (FIELD_IDS[column],), transform, None, result, parameters),))


SPECS = {
    "bucket": bucket_spec(1, "num", FIELD_IDS, 4),
    "bucket of text": bucket_spec(1, "text", FIELD_IDS, 3),
    "identity": _spec("num", "identity", "int64"),
    "identity of text": _spec("text", "identity", "utf8"),
    "truncate": _spec("num", "truncate", "int64", width="5"),
    "truncate text": _spec("text", "truncate", "utf8", width="1"),
    "year": _spec("at", "year", "int32"),
    "month": _spec("at", "month", "int32"),
    "day": _spec("at", "day", "int32"),
    "hour": _spec("at", "hour", "int32"),
    "year of a date": _spec("day", "year", "int32"),
    "expression": RegionSpec(1, (RegionField("f", (FIELD_IDS["num"],), None, "col0 % 3", "int64"),)),
    "two fields": RegionSpec(
        1,
        (
            RegionField("f", (FIELD_IDS["num"],), "identity", None, "int64", {}),
            RegionField("g", (FIELD_IDS["text"],), "truncate", None, "utf8", {"width": "1"}),
        ),
    ),
}

numbers = st.integers(-8, 8)
texts = st.sampled_from(["", "a", "ab", "b", "ba", "c", "\u00e4"])
moments = st.integers(0, 40 * 24).map(lambda hours: START + timedelta(hours=hours))
days = st.integers(0, 40).map(lambda number: date(2023, 12, 30) + timedelta(days=number))
rows = st.lists(
    st.tuples(st.none() | numbers, st.none() | texts, st.none() | moments, st.none() | days), min_size=1, max_size=12
)
literals = {
    "num": numbers.map(str),
    "text": texts.map(lambda text: f"'{text}'"),
    "at": moments.map(lambda moment: f"timestamp '{moment:%Y-%m-%d %H:%M:%S}'"),
    "day": days.map(lambda each: f"date '{each}'"),
}


@st.composite
def _comparison(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(SCHEMA.names))
    literal = literals[column]
    kind = draw(
        st.sampled_from(["compare", "compare", "flipped", "in", "not in", "between", "null", "not null", "other"])
    )
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]))
    values = draw(st.lists(literal, min_size=2, max_size=3))
    return {
        "compare": f"{column} {operator} {values[0]}",
        "flipped": f"{values[0]} {operator} {column}",
        "in": f"{column} IN ({', '.join(values)})",
        "not in": f"{column} NOT IN ({', '.join(values)})",
        "between": f"{column} BETWEEN {values[0]} AND {values[1]}",
        "null": f"{column} IS NULL",
        "not null": f"{column} IS NOT NULL",
        "other": draw(st.sampled_from(["num % 2 = 0", "text LIKE 'a%'", "num + 1 > 3", "NOT (num > 1)"])),
    }[kind]


filters = st.recursive(
    _comparison(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda each: f"({each[0]} AND {each[1]})"),
        st.tuples(inner, inner).map(lambda each: f"({each[0]} OR {each[1]})"),
        inner.map(lambda each: f"(NOT {each})"),
    ),
    max_leaves=5,
)


def _region(spec: RegionSpec, value: tuple[object, ...]) -> RegionManifest:
    return RegionManifest(
        RegionId(uuid.uuid5(uuid.NAMESPACE_OID, repr(value))),
        region_spec_id=spec.spec_id,
        region_field_values=encode_region_value(spec, value),  # type: ignore[arg-type]
        status=RegionStatus.SEALED,
    )


@pytest.mark.req("RD-22", "RD-24", "RD-25")
@pytest.mark.parametrize("name", SPECS)
@settings(derandomize=True, deadline=None, max_examples=30)
@given(written=rows, filter_sql=filters)
def test_pruning_never_leaves_out_a_region_with_a_match(
    name: str, written: list[tuple[object, ...]], filter_sql: str
) -> None:
    spec = SPECS[name]
    columns = zip(*written, strict=True)
    table = pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)
    pruner = RegionPruner([spec], SCHEMA, FIELD_IDS, boxes_of(filter_sql, SCHEMA))
    found = as_dataset(table).to_table(columns=[], filter=filter_sql, with_row_address=True)
    matching = table.take(found.column("_rowaddr").cast(pa.int64()))
    for part in RegionRouter(spec, FIELD_IDS).route(matching) if matching.num_rows else ():
        assert pruner.may_match(_region(spec, part.value)), (filter_sql, part.value)


@pytest.mark.req("RD-22")
@pytest.mark.parametrize("name", SPECS)
def test_pruning_leaves_something_out_for_every_transform(name: str) -> None:
    """Without this the property above would also hold for a pruner that leaves everything in."""
    spec = SPECS[name]
    written = [(number % 20 - 4, "abcdefg"[number % 7], START + timedelta(hours=number * 31), date(2020 + number, 1, 1))
               for number in range(20)]  # fmt: skip
    columns = zip(*written, strict=True)
    table = pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)
    moment = START + timedelta(hours=8 * 31)
    condition = f"num = 4 AND text = 'b' AND at = timestamp '{moment:%Y-%m-%d %H:%M:%S}' AND day = date '2028-01-01'"
    pruner = RegionPruner([spec], SCHEMA, FIELD_IDS, boxes_of(condition, SCHEMA))
    parts = RegionRouter(spec, FIELD_IDS).route(table)
    left = [part for part in parts if pruner.may_match(_region(spec, part.value))]

    assert 0 < len(left) < len(parts)
