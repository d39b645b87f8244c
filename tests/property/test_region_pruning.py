"""Pruning never drops a region that holds a matching row."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from datafusion import SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.ids import RegionId
from memwal_core.reader.plan.predicate import boxes_of
from memwal_core.reader.plan.pruning import RegionPruner
from memwal_core.region import RegionManifest
from memwal_core.region.spec import (
    RegionField,
    RegionRouter,
    RegionSpec,
    bucket_spec,
    encode_region_value,
    multi_bucket_spec,
)

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.string()), ("at", pa.timestamp("us")), ("x", pa.int32())])
FIELD_IDS = {name: position for position, name in enumerate(SCHEMA.names)}
START = datetime(2023, 11, 1)  # noqa: DTZ001 - the column has no time zone


def _spec(transform: str, column: str, result_type: str, **parameters: str) -> RegionSpec:
    return RegionSpec(1, (RegionField("f", (FIELD_IDS[column],), transform, None, result_type, parameters),))


SPECS = [
    _spec("identity", "n", "int64"),
    _spec("identity", "t", "utf8"),
    _spec("truncate", "n", "int64", width="7"),
    _spec("truncate", "t", "utf8", width="1"),
    _spec("bucket", "n", "int32", num_buckets="5"),  # pylance's formula
    bucket_spec(1, "n", FIELD_IDS, 5),
    bucket_spec(1, "t", FIELD_IDS, 5),
    multi_bucket_spec(1, ["n", "t"], FIELD_IDS, 5),
    *(_spec(part, "at", "int32") for part in ("year", "month", "day", "hour")),
    RegionSpec(1, (RegionField("f", (0, 3), None, "coalesce(col0, 0) % 3 + coalesce(col1, 7)", "int64"),)),
]

numbers = st.integers(-12, 12)
texts = st.text("abß", max_size=2)
moments = st.integers(0, 500).map(lambda days: START + timedelta(days=days, hours=days % 24))


def _quoted(text: str) -> str:
    return f"'{text}'"


def _moment(value: datetime) -> str:
    return f"timestamp '{value:%Y-%m-%d %H:%M:%S}'"


literals = {"n": numbers.map(str), "x": numbers.map(str), "t": texts.map(_quoted), "at": moments.map(_moment)}


@st.composite
def _leaves(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(SCHEMA.names))
    value = literals[column]
    kind = draw(st.sampled_from(["compare", "flipped", "in", "between", "null", "not null", "like"]))
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]))
    match kind:
        case "compare":
            return f"{column} {operator} {draw(value)}"
        case "flipped":
            return f"{draw(value)} {operator} {column}"
        case "in":
            negated = draw(st.sampled_from(["", "NOT "]))
            return f"{column} {negated}IN ({', '.join(draw(st.lists(value, min_size=1, max_size=3)))})"
        case "between":
            return f"{column} BETWEEN {draw(value)} AND {draw(value)}"
        case "like":
            return "t LIKE 'a%'"
    return f"{column} IS {'NOT ' if kind == 'not null' else ''}NULL"


filters = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=5,
)
rows = st.lists(
    st.tuples(st.none() | numbers, st.none() | texts, st.none() | moments, st.none() | numbers), min_size=1, max_size=12
)


@pytest.mark.req("RD-24", "RD-25")
@settings(derandomize=True, deadline=None, max_examples=250)
@given(spec=st.sampled_from(SPECS), values=rows, filter_sql=filters)
def test_matching_row_lies_in_a_region_that_is_kept(
    spec: RegionSpec, values: list[tuple[object, ...]], filter_sql: str
) -> None:
    table = pa.table([pa.array(c, f.type) for c, f in zip(zip(*values, strict=True), SCHEMA, strict=True)], SCHEMA)
    context = SessionContext()
    context.register_record_batches("rows", [table.to_batches()])
    matching = context.sql(f"SELECT * FROM rows WHERE {filter_sql}").to_arrow_table()
    pruner = RegionPruner([spec], SCHEMA, FIELD_IDS, boxes_of(filter_sql, SCHEMA))

    for value in RegionRouter(spec, FIELD_IDS).values(matching.cast(SCHEMA)):
        manifest = RegionManifest(
            RegionId(uuid.UUID(int=1)), region_spec_id=1, region_field_values=encode_region_value(spec, value)
        )
        assert pruner.may_match(manifest), (value, filter_sql)
