from collections import Counter
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.comparison import compare
from demo.flights.expectation import expected_flights
from demo.flights.source import FLIGHTS_SCHEMA, KEY_COLUMNS, flights_of_first_days
from demo.flights.stream import EventKind, flight_events
from memwal_core.errors import InvalidRequestError

KEY = list(KEY_COLUMNS)


def rows_of(batches):
    return pa.concat_tables([FLIGHTS_SCHEMA.empty_table(), *(batch.rows for batch in batches)])


def last_write_wins(rows):
    """Replay as a table with a primary key would: of each key the row that was written last."""
    numbered = rows.select(KEY).append_column("number", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(KEY).aggregate([("number", "max")])["number_max"]
    return rows.take(last)


def sample(flights, step=500):
    return flights.take(pa.array(np.arange(0, flights.num_rows, step)))


@pytest.fixture(scope="module")
def whole_year(all_flights):
    return list(flight_events(all_flights))


@pytest.fixture(scope="module")
def whole_rows(whole_year):
    return rows_of(whole_year).combine_chunks()


def test_whole_year_replayed_last_write_wins_equals_the_expectation(all_flights, whole_rows):
    difference = compare(expected_flights(all_flights), last_write_wins(whole_rows), KEY)

    assert difference.identical, str(difference)
    assert difference.expected_rows == 336_776


@pytest.mark.parametrize("max_batch_rows", [1, 7, 2_000])
def test_sample_replayed_last_write_wins_equals_the_expectation(all_flights, max_batch_rows):
    chosen = sample(all_flights)
    batches = list(flight_events(chosen, max_batch_rows=max_batch_rows))
    difference = compare(expected_flights(chosen), last_write_wins(rows_of(batches)), KEY)

    assert difference.identical, str(difference)
    assert max(batch.rows.num_rows for batch in batches) <= max_batch_rows


def test_order_of_the_stream_matters_to_the_replay(all_flights):
    chosen = sample(all_flights)
    backwards = [batch.rows for batch in flight_events(chosen)][::-1]
    difference = compare(expected_flights(chosen), last_write_wins(pa.concat_tables(backwards)), KEY)

    assert difference.changed_rows == chosen.num_rows


def test_whole_year_has_a_schedule_a_departure_and_a_landing_for_what_happened(whole_year, whole_rows):
    by_kind = Counter()
    for batch in whole_year:
        by_kind[batch.kind] += batch.rows.num_rows
    by_status = {row["values"]: row["counts"] for row in whole_rows["status"].value_counts().to_pylist()}

    assert by_kind == {EventKind.SCHEDULE: 336_776, EventKind.DEPARTURE: 336_776, EventKind.LANDING: 328_063}
    assert by_status == {"scheduled": 336_776, "departed": 328_521, "cancelled": 8_255, "landed": 328_063}


def test_updates_of_one_key_come_in_order_of_time_and_status(whole_rows):
    numbered = whole_rows.append_column("number", pa.array(np.arange(whole_rows.num_rows)))
    history = numbered.sort_by([(name, "ascending") for name in [*KEY, "number"]])
    same_key = np.ones(history.num_rows - 1, dtype=bool)
    for name in KEY:
        column = history[name].combine_chunks()
        same_key &= np.asarray(pc.equal(column[1:], column[:-1]))
    happened = history["updated_at"].cast(pa.int64()).to_numpy()
    status = np.asarray(history["status"].to_pylist())
    steps = Counter(zip(status[:-1][same_key].tolist(), status[1:][same_key].tolist(), strict=True))

    assert np.all(np.diff(happened)[same_key] > 0)
    assert steps == {
        ("scheduled", "departed"): 328_521,
        ("scheduled", "cancelled"): 8_255,
        ("departed", "landed"): 328_063,
    }


def test_days_come_in_order_and_within_a_day_schedule_departures_landings(whole_year):
    rank = {kind: number for number, kind in enumerate(EventKind)}
    order = [(batch.day, rank[batch.kind]) for batch in whole_year]

    assert order == sorted(set(order))
    assert [batch.sequence for batch in whole_year] == list(range(len(whole_year)))
    assert (whole_year[0].day, whole_year[0].kind) == (date(2012, 12, 31), EventKind.SCHEDULE)
    assert (whole_year[-1].day, whole_year[-1].kind) == (date(2014, 1, 1), EventKind.LANDING)


def test_batches_hold_events_of_their_day_in_order_of_time_with_each_key_once(whole_year):
    for batch in whole_year:
        happened = batch.rows["updated_at"].cast(pa.int64()).to_numpy()
        local_days = (happened // 1_000_000 - 5 * 3600) // 86_400
        assert set(local_days.tolist()) == {batch.day.toordinal() - date(1970, 1, 1).toordinal()}
        assert np.all(np.diff(happened) >= 0)
        assert batch.rows.group_by(KEY).aggregate([]).num_rows == batch.rows.num_rows > 0
        assert batch.rows.schema.equals(FLIGHTS_SCHEMA, check_metadata=True)


def test_schedule_is_written_the_day_before_the_flights(whole_year):
    schedules = [batch for batch in whole_year if batch.kind is EventKind.SCHEDULE]

    assert len(schedules) == 365
    for batch in schedules:
        flown = {(row["year"], row["month"], row["day"]) for row in batch.rows.select(KEY[:3]).to_pylist()}
        assert flown == {date.fromordinal(batch.day.toordinal() + 1).timetuple()[:3]}


def test_rows_hold_only_what_was_known(all_flights, whole_rows):
    known = {}
    for status in ("scheduled", "departed", "cancelled", "landed"):
        rows = whole_rows.filter(pc.equal(whole_rows["status"], status))
        known[status] = {
            name: rows.num_rows - rows[name].null_count
            for name in ("sched_arr_time", "tailnum", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
        }

    tail_numbers = all_flights.filter(pc.is_valid(all_flights["dep_time"]))["tailnum"]
    assert known["scheduled"] == {
        "sched_arr_time": 336_776, "tailnum": 0, "dep_time": 0, "dep_delay": 0,
        "arr_time": 0, "arr_delay": 0, "air_time": 0,
    }  # fmt: skip
    assert known["departed"] == {
        "sched_arr_time": 328_521, "tailnum": len(tail_numbers) - tail_numbers.null_count, "dep_time": 328_521,
        "dep_delay": 328_521, "arr_time": 0, "arr_delay": 0, "air_time": 0,
    }  # fmt: skip
    assert known["cancelled"] == {
        "sched_arr_time": 8_255, "tailnum": 8_255 - 2_512, "dep_time": 0, "dep_delay": 0,
        "arr_time": 0, "arr_delay": 0, "air_time": 0,
    }  # fmt: skip
    assert known["landed"] == {
        "sched_arr_time": 328_063, "tailnum": 328_063, "dep_time": 328_063, "dep_delay": 328_063,
        "arr_time": 328_063, "arr_delay": 327_346, "air_time": 327_346,
    }  # fmt: skip


def test_selection_of_flights_gives_exactly_its_part_of_the_stream(all_flights):
    week = flights_of_first_days(all_flights, 7)
    own = pc.equal(week["origin"], "JFK")
    from_selection = rows_of(flight_events(week.filter(own)))
    whole = rows_of(flight_events(week))

    assert from_selection.combine_chunks().equals(whole.filter(pc.equal(whole["origin"], "JFK")).combine_chunks())


def test_batch_size_cuts_the_stream_without_changing_it(all_flights):
    week = flights_of_first_days(all_flights, 7)
    small, large = list(flight_events(week, max_batch_rows=100)), list(flight_events(week))

    assert rows_of(small).combine_chunks().equals(rows_of(large).combine_chunks())
    assert len(small) > len(large)


def test_no_flights_give_an_empty_stream(all_flights):
    assert list(flight_events(all_flights.slice(0, 0))) == []


def test_cancelled_flights_alone_give_a_stream_without_landings(all_flights):
    cancelled = all_flights.filter(pc.is_null(all_flights["dep_time"])).slice(0, 20)
    batches = list(flight_events(cancelled))

    assert {batch.kind for batch in batches} == {EventKind.SCHEDULE, EventKind.DEPARTURE}
    assert compare(expected_flights(cancelled), last_write_wins(rows_of(batches)), KEY).identical


def test_batch_size_below_one_is_refused_before_the_first_batch(all_flights):
    with pytest.raises(InvalidRequestError) as caught:
        flight_events(all_flights, max_batch_rows=0)

    assert caught.value.facts == {"max_batch_rows": 0}
