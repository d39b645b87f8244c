import zipfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.flights.source import FLIGHTS_SCHEMA, KEY_COLUMNS, find_flight_data, flights_of_first_days, load_flights
from memwal_core.errors import InvalidRequestError


def minutes(column):
    return np.asarray(pc.fill_null(column, 0), dtype=np.int64)


def one(flights, **key):
    for name, value in key.items():
        flights = flights.filter(pc.equal(flights[name], value))
    (row,) = flights.to_pylist()
    return row


def test_loading_gives_every_flight_with_its_key_once(all_flights):
    assert all_flights.num_rows == 336_776
    assert all_flights.group_by(list(KEY_COLUMNS)).aggregate([]).num_rows == 336_776


def test_loading_reads_absent_values_as_null(all_flights):
    nulls = {name: all_flights[name].null_count for name in all_flights.column_names}

    assert {name: count for name, count in nulls.items() if count} == {
        "dep_time": 8_255,
        "dep_delay": 8_255,
        "arr_time": 8_713,
        "arr_delay": 9_430,
        "air_time": 9_430,
        "tailnum": 2_512,
        "departed_at": 8_255,
        "landed_at": 8_713,
    }


@pytest.mark.req("FMT-48")
def test_target_schema_numbers_the_key_columns_and_only_they_are_required():
    positions = {
        field.name: int(field.metadata[b"lance-schema:unenforced-primary-key:position"])
        for field in FLIGHTS_SCHEMA
        if field.metadata and field.metadata[b"lance-schema:unenforced-primary-key"] == b"true"
    }

    assert positions == {name: number for number, name in enumerate(KEY_COLUMNS, start=1)}
    assert {field.name for field in FLIGHTS_SCHEMA if not field.nullable} == set(KEY_COLUMNS)


def test_event_times_of_a_flight_west_agree_with_the_time_zone_database(all_flights):
    row = one(all_flights, month=7, day=4, carrier="UA", flight=1742, origin="EWR")  # to San Francisco

    assert row["dest"] == "SFO"
    departure = datetime(2013, 7, 4, row["dep_time"] // 100, row["dep_time"] % 100, tzinfo=ZoneInfo("America/New_York"))
    arrival = datetime(
        2013, 7, 4, row["arr_time"] // 100, row["arr_time"] % 100, tzinfo=ZoneInfo("America/Los_Angeles")
    )
    assert row["departed_at"] == departure.astimezone(UTC)
    assert row["landed_at"] == arrival.astimezone(UTC)


def test_scheduled_arrival_and_delay_lead_to_the_same_landing(all_flights):
    # The delay of the arrival is not used to compute landings, so that it can check every one of them: what was
    # planned to pass between departure and landing, plus the delay gained on the way, is what passed.
    rows = all_flights.filter(pc.is_valid(all_flights["arr_delay"]))
    gained = minutes(rows["arr_delay"]) - minutes(rows["dep_delay"])
    elapsed = minutes(pc.minutes_between(rows["departed_at"], rows["landed_at"]))
    by_clock = [
        minutes(rows[name]) // 100 * 60 + minutes(rows[name]) % 100
        for name in ("sched_dep_time", "sched_arr_time", "dep_time", "arr_time")
    ]
    planned_by_clock, passed_by_clock = by_clock[1] - by_clock[0], by_clock[3] - by_clock[2]

    assert rows.num_rows == 327_346
    assert np.all((passed_by_clock - planned_by_clock - gained) % 1440 == 0)
    assert np.all(elapsed > minutes(rows["air_time"]))
    assert np.all(elapsed < minutes(rows["air_time"]) + 240)


def test_departures_agree_with_the_clock_of_new_york(all_flights):
    rows = all_flights.filter(pc.is_valid(all_flights["departed_at"]))
    local = pc.local_timestamp(rows["departed_at"].cast(pa.timestamp("us", tz="America/New_York")))
    clock = minutes(pc.hour(local)) * 100 + minutes(pc.minute(local))

    assert np.array_equal(clock % 2400, minutes(rows["dep_time"]) % 2400)


def test_first_days_keep_whole_flights_of_those_days_only(all_flights):
    two = flights_of_first_days(all_flights, 2)

    assert two.num_rows == 842 + 943
    assert set(two["day"].to_pylist()) == {1, 2}
    assert set(two["month"].to_pylist()) == {1}
    assert flights_of_first_days(all_flights, 365).num_rows == 336_776
    assert flights_of_first_days(two.slice(0, 0), 1).num_rows == 0


def test_first_days_below_one_are_refused(all_flights):
    with pytest.raises(InvalidRequestError) as caught:
        flights_of_first_days(all_flights, 0)

    assert caught.value.facts == {"days": 0}


@pytest.mark.parametrize("package", ["no_such_package", "json", "zipfile"])
def test_absent_data_is_refused_with_the_way_to_install_it(package):
    with pytest.raises(InvalidRequestError, match="uv sync --group demo"):
        find_flight_data(package)


def test_destination_without_time_zone_is_refused(tmp_path: Path):
    installed = find_flight_data()
    with zipfile.ZipFile(installed / "flights.csv.zip") as source:
        lines = source.read("flights.csv").splitlines(keepends=True)
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", b"".join(lines[:2]).replace(b"IAH", b"XXX"))
    (tmp_path / "airports.csv").write_bytes((installed / "airports.csv").read_bytes())

    with pytest.raises(InvalidRequestError) as caught:
        load_flights(tmp_path)

    assert caught.value.facts["airports"] == ["XXX"]
