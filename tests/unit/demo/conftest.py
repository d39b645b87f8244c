import pytest

from demo.flights.source import load_flights


@pytest.fixture(scope="session")
def all_flights():
    return load_flights()
