from datetime import UTC, datetime

import pyarrow.compute as pc

from demo.flights.expectation import expected_flights
from demo.flights.source import FLIGHTS_SCHEMA, KEY_COLUMNS, flights_of_first_days


def final(table, **key):
    for name, value in key.items():
        table = table.filter(pc.equal(table[name], value))
    (row,) = table.to_pylist()
    return row


def test_expectation_counts_the_ends_of_the_year(all_flights):
    expected = expected_flights(all_flights)
    ends = {row["values"]: row["counts"] for row in expected["status"].value_counts().to_pylist()}

    assert ends == {"landed": 328_063, "departed": 458, "cancelled": 8_255}
    assert expected["updated_at"].null_count == 0
    assert expected.schema.equals(FLIGHTS_SCHEMA, check_metadata=True)


def test_expectation_is_sorted_by_key(all_flights):
    expected = expected_flights(flights_of_first_days(all_flights, 2))
    keys = [tuple(row.values()) for row in expected.select(KEY_COLUMNS).to_pylist()]

    assert keys == sorted(keys)
    assert len(set(keys)) == 1_785


def test_landed_flight_ends_with_its_landing(all_flights):
    row = final(expected_flights(all_flights), month=1, day=1, carrier="UA", flight=1545)

    # Left New York at 5:17, landed in Houston at 8:30, an hour behind.
    assert (row["status"], row["updated_at"]) == ("landed", datetime(2013, 1, 1, 14, 30, tzinfo=UTC))
    assert (row["dep_time"], row["arr_time"], row["arr_delay"], row["air_time"]) == (517, 830, 11, 227)


def test_cancelled_flight_ends_at_its_scheduled_departure(all_flights):
    row = final(expected_flights(all_flights), month=1, day=1, carrier="AA", flight=791)

    assert row["sched_dep_time"] == 1935
    assert (row["status"], row["updated_at"]) == ("cancelled", datetime(2013, 1, 2, 0, 35, tzinfo=UTC))
    assert row["dep_time"] is None
    assert row["arr_time"] is None


def test_flight_without_recorded_landing_stays_departed(all_flights):
    expected = expected_flights(all_flights)
    lost = expected.filter(pc.equal(expected["status"], "departed"))

    assert lost["arr_time"].null_count == lost.num_rows == 458
    assert lost["dep_time"].null_count == 0
