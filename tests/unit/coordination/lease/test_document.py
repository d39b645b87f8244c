"""The lease document: its bytes, and what may follow what."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.coordination.lease import LeaseDocument, check_lease_change, decode_lease, encode_lease
from memwal_core.errors import CorruptionError, InvalidRequestError

TEN = datetime(2026, 1, 15, 10, tzinfo=UTC)
EXAMPLE = LeaseDocument("node-abc", 42, TEN, TEN + timedelta(minutes=5))


@pytest.mark.req("LEASE-01")
def test_example_document_round_trips_with_the_four_fields():
    text = {
        "holder": "node-abc",
        "fencing_token": 42,
        "acquired_at": "2026-01-15T10:00:00Z",
        "expires_at": "2026-01-15T10:05:00Z",
    }
    assert decode_lease(json.dumps(text).encode(), "lease.json") == EXAMPLE
    stored = json.loads(encode_lease(EXAMPLE))
    assert {name: stored[name] for name in text} == text
    assert decode_lease(encode_lease(EXAMPLE), "lease.json") == EXAMPLE


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b"{",
        b'{"holder": "a"}',
        encode_lease(EXAMPLE).replace(b"42", b'"42"'),
        encode_lease(EXAMPLE).replace(b"42", b"0"),
        encode_lease(EXAMPLE).replace(b'"node-abc"', b"7"),
        encode_lease(EXAMPLE).replace(b"10:05:00Z", b"10:05:00"),
    ],
)
def test_damaged_document_is_corrupt(damage):
    with pytest.raises(CorruptionError, match="lease document"):
        decode_lease(damage, "lease.json")


@pytest.mark.req("LEASE-08")
def test_document_that_ends_where_it_began_is_released():
    assert not EXAMPLE.released
    assert replace(EXAMPLE, expires_at=EXAMPLE.acquired_at).released


@pytest.mark.req("LEASE-21", "G-12")
@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    old=st.integers(1, 10),
    new=st.integers(1, 12),
    other_holder=st.booleans(),
    later=st.booleans(),
)
def test_lower_token_never_replaces_a_higher_one(old, new, other_holder, later):
    before = replace(EXAMPLE, fencing_token=old)
    after = replace(
        before,
        fencing_token=new,
        holder="node-xyz" if other_holder else before.holder,
        acquired_at=TEN + timedelta(seconds=later),
    )
    allowed = new == old + 1 or (new == old and not other_holder and not later)
    if allowed:
        check_lease_change(before, after)
    else:
        with pytest.raises(InvalidRequestError):
            check_lease_change(before, after)


@pytest.mark.req("LEASE-05")
def test_first_token_is_one():
    check_lease_change(None, replace(EXAMPLE, fencing_token=1))
    with pytest.raises(InvalidRequestError):
        check_lease_change(None, EXAMPLE)
