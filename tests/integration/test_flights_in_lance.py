import lance
import pytest

from demo.comparison import compare
from demo.flights.expectation import expected_flights
from demo.flights.source import FLIGHTS_SCHEMA, KEY_COLUMNS, flights_of_first_days, load_flights
from demo.flights.stream import flight_events


@pytest.fixture(scope="module")
def two_days():
    return flights_of_first_days(load_flights(), 2)


@pytest.mark.req("FMT-48")
def test_lance_reads_the_primary_key_from_the_schema(tmp_path):
    dataset = lance.write_dataset(FLIGHTS_SCHEMA.empty_table(), tmp_path / "flights")
    key = {
        field.unenforced_primary_key_position(): field.name()
        for field in dataset.lance_schema.fields()
        if field.is_unenforced_primary_key()
    }

    assert [key[position] for position in sorted(key)] == list(KEY_COLUMNS)


def test_stream_upserted_by_lance_itself_equals_the_expectation(tmp_path, two_days):
    uri = str(tmp_path / "flights")
    dataset = lance.write_dataset(FLIGHTS_SCHEMA.empty_table(), uri)
    for batch in flight_events(two_days):
        # Without column names the upsert goes by the primary key of the schema.
        dataset.merge_insert().when_matched_update_all().when_not_matched_insert_all().execute(batch.rows)
    difference = compare(expected_flights(two_days), lance.dataset(uri).to_table(), KEY_COLUMNS)

    assert difference.identical, str(difference)


def test_stream_put_through_the_writer_of_lance_equals_the_expectation(tmp_path, two_days):
    dataset = lance.write_dataset(FLIGHTS_SCHEMA.empty_table(), tmp_path / "flights")
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer("6b1f3a52-6d0e-4b0e-9d53-2a4b7c1d9e10", max_wal_flush_interval_ms=1) as writer:
        for batch in flight_events(two_days):
            writer.put(batch.rows)
        actual = writer.lsm_scanner().to_table()
    difference = compare(expected_flights(two_days), actual, KEY_COLUMNS)

    assert difference.identical, str(difference)
