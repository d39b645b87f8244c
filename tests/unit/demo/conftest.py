import pytest

from memwal_core.demo import load_flights


@pytest.fixture(scope="session")
def all_flights():
    return load_flights()
