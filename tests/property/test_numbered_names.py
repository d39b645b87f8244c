import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memwal_core.format.paths import bit_reversed, parse_bit_reversed, parse_table_manifest_name, table_manifest_name

NUMBERS = st.integers(1, 2**64 - 1)


@pytest.mark.req("FMT-07")
@settings(derandomize=True, deadline=None)
@given(NUMBERS, NUMBERS)
@example(2**63, 2**64 - 1)
@example(1, 2**63)
def test_every_number_has_one_name_and_every_name_one_number(first: int, second: int) -> None:
    assert parse_bit_reversed(bit_reversed(first)) == first
    assert (bit_reversed(first) == bit_reversed(second)) == (first == second)


@pytest.mark.req("FMT-07")
@settings(derandomize=True, deadline=None)
@given(st.text("01", min_size=64, max_size=64).filter(lambda name: "1" in name))
def test_every_well_formed_name_comes_back(name: str) -> None:
    assert bit_reversed(parse_bit_reversed(name)) == name


@pytest.mark.req("FMT-16")
@settings(derandomize=True, deadline=None)
@given(NUMBERS, NUMBERS)
def test_newer_table_versions_sort_first(first: int, second: int) -> None:
    assert parse_table_manifest_name(table_manifest_name(first)) == first
    assert (table_manifest_name(first) < table_manifest_name(second)) == (first > second)
