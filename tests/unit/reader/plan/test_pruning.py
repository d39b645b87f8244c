"""Which regions a filter leaves, per transform and kind of predicate."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from memwal_core.ids import RegionId
from memwal_core.reader.plan.predicate import boxes_of
from memwal_core.reader.plan.pruning import RegionPruner
from memwal_core.region import RegionManifest, RegionStatus
from memwal_core.region.spec import RegionField, RegionRouter, RegionSpec, bucket_spec, encode_region_value

SCHEMA = pa.schema(
    [("user_id", pa.int64()), ("country", pa.string()), ("at", pa.timestamp("us")), ("weight", pa.float64())]
)
FIELD_IDS = {name: position for position, name in enumerate(SCHEMA.names)}


def _field(transform: str, column: str, result_type: str, **parameters: str) -> RegionField:
    return RegionField("f", (FIELD_IDS[column],), transform, None, result_type, parameters)


def _regions(spec: RegionSpec, values: list[object]) -> dict[object, RegionManifest]:
    return {
        value: RegionManifest(
            RegionId(uuid.UUID(int=number)),
            region_spec_id=spec.spec_id,
            region_field_values=encode_region_value(spec, (value,)),  # type: ignore[arg-type]
            status=RegionStatus.SEALED,
        )
        for number, value in enumerate(values, 1)
    }


def _left(spec: RegionSpec, values: list[object], filter_sql: str) -> list[object]:
    pruner = RegionPruner([spec], SCHEMA, FIELD_IDS, boxes_of(filter_sql, SCHEMA))
    return [value for value, manifest in _regions(spec, values).items() if pruner.may_match(manifest)]


IDENTITY = RegionSpec(1, (_field("identity", "user_id", "int64"),))
COUNTRY = RegionSpec(1, (_field("identity", "country", "utf8"),))
YEAR = RegionSpec(1, (_field("year", "at", "int32"),))
MONTH = RegionSpec(1, (_field("month", "at", "int32"),))
TENS = RegionSpec(1, (_field("truncate", "user_id", "int64", width="10"),))
PREFIX = RegionSpec(1, (_field("truncate", "country", "utf8", width="1"),))
SQL = RegionSpec(1, (RegionField("f", (FIELD_IDS["user_id"],), None, "col0 % 3", "int64"),))


@pytest.mark.req("RD-22", "RD-24")
@pytest.mark.parametrize(
    ("spec", "values", "filter_sql", "expected"),
    [
        (IDENTITY, [1, 2, 3, None], "user_id = 2", [2]),
        (IDENTITY, [1, 2, 3, None], "2 = user_id", [2]),
        (IDENTITY, [1, 2, 3, None], "user_id IN (1, 3)", [1, 3]),
        (IDENTITY, [1, 2, 3, None], "user_id >= 2", [2, 3]),
        (IDENTITY, [1, 2, 3, None], "2 > user_id", [1, 2]),
        (IDENTITY, [1, 2, 3, None], "user_id BETWEEN 2 AND 3", [2, 3]),
        (IDENTITY, [1, 2, 3, None], "user_id IS NULL", [None]),
        (IDENTITY, [1, 2, 3, None], "user_id = 1 OR user_id = 3", [1, 3]),
        (IDENTITY, [1, 2, 3, None], "user_id = 1 AND weight > 0.5", [1]),
        (IDENTITY, [1, 2, 3, None], "user_id = 1 OR weight > 0.5", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "user_id = 1 AND user_id = 2", []),
        (IDENTITY, [0, 1, 2, 3, 4, None], "user_id > 1 AND user_id < 3", [1, 2, 3]),
        (IDENTITY, [1, 2, 3, None], "user_id <> 2", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "NOT (user_id = 2)", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "user_id + 1 = 2", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "user_id = 2.5", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "this is no SQL", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "isnan(weight)", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "user_id = 1 AND upper(country) = 'DE'", [1]),
        (IDENTITY, [1, 2, 3, None], "user_id = 1 OR isnan(weight)", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "user_id = abs(-2)", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "user_id IN (1, abs(-2))", [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], " OR ".join(["user_id = 1"] * 2000), [1, 2, 3, None]),
        (IDENTITY, [1, 2, 3, None], "user_id = 2 LIMIT 1", [1, 2, 3, None]),
        (COUNTRY, ["de", "fr", None], "country = 'fr'", ["fr"]),
        (COUNTRY, ["de", "fr", None], "country LIKE 'f%'", ["de", "fr", None]),
        (COUNTRY, ["de", "fr", None], "country > 'e'", ["fr"]),
        (COUNTRY, ["de", "fr", None], "\"country\" < 'd'", ["de", "fr", None]),
        (YEAR, [2023, 2024], "at > timestamp '0000-01-01 00:00:00'", [2023, 2024]),
        (YEAR, [2023, 2024, 2025, None], "at >= timestamp '2024-05-01 00:00:00'", [2024, 2025]),
        (YEAR, [2023, 2024, 2025, None], "at = timestamp '2024-05-01 00:00:00'", [2024]),
        (MONTH, [1, 5, 12], "at = timestamp '2024-05-01 00:00:00'", [5]),
        (MONTH, [1, 5, 12], "at >= timestamp '2024-05-01 00:00:00'", [1, 5, 12]),
        (TENS, [-10, 0, 10, 20], "user_id BETWEEN 5 AND 12", [0, 10]),
        (TENS, [-10, 0, 10, 20], "user_id < -3", [-10, 0]),
        (PREFIX, ["a", "b", "c"], "country >= 'b'", ["b", "c"]),
        (SQL, [0, 1, 2], "user_id IN (3, 4)", [0, 1]),
        (SQL, [0, 1, 2], "user_id > 3", [0, 1, 2]),
    ],
)
def test_filter_leaves_the_regions_that_can_match(
    spec: RegionSpec, values: list[object], filter_sql: str, expected: list[object]
) -> None:
    assert _left(spec, values, filter_sql) == expected


@pytest.mark.req("RD-23")
def test_equality_on_a_bucketed_key_leaves_the_bucket_that_writers_route_it_to() -> None:
    spec = bucket_spec(1, "user_id", FIELD_IDS, 10)
    ((expected,),) = RegionRouter(spec, FIELD_IDS).values(pa.table({"user_id": pa.array([123], pa.int64())}))

    assert _left(spec, list(range(10)), "user_id = 123") == [expected]


@pytest.mark.req("RD-26")
def test_manual_regions_and_regions_of_other_specs_are_judged_by_their_own() -> None:
    pruner = RegionPruner([IDENTITY], SCHEMA, FIELD_IDS, boxes_of("user_id = 1", SCHEMA))
    by_hand = RegionManifest(RegionId(uuid.UUID(int=9)))
    unknown = RegionManifest(RegionId(uuid.UUID(int=9)), region_spec_id=7, region_field_values={"f": b"1"})

    without_value = RegionManifest(RegionId(uuid.UUID(int=9)), region_spec_id=1)

    assert pruner.may_match(by_hand)
    assert pruner.may_match(without_value)
    assert pruner.may_match(unknown)
    assert not pruner.may_match(_regions(IDENTITY, [2])[2])
