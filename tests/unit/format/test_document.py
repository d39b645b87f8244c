"""Small JSON documents: whatever anybody wrote there is a value within bounds, or refused."""

from __future__ import annotations

import pytest

from memwal_core.coordination.freeze.document import decode_record
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease.document import decode_lease
from memwal_core.coordination.ledger.codec import decode_history
from memwal_core.errors import CorruptionError
from memwal_core.format.document import as_moment, as_number, as_text, encode_document, parse_document
from memwal_core.format.malformed import MalformedError

_LEASE = (
    '{"holder": "x", "fencing_token": %s, "acquired_at": "2026-01-01T00:00:00Z", "expires_at": %s, "commit_id": "00"}'
)
_RECORD = '{"addresses": [], "table": %s, "progress": %s, "regions": {}, "freezes": []}'
_TABLE = '{"version": %s, "timestamp": "2026-01-01T00:00:00+00:00", "index_id": null}'


def test_ordinary_document_is_read() -> None:
    assert parse_document(b'{"a": [1, "\\u00e9", null]}') == {"a": [1, "é", None]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b"1" * 5_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a": "\\ud800"}',
        b"[" + b"[]," * (1 << 20) + b"[]]",
        b'"' + b"a" * (33 << 20) + b'"',
    ],
    ids=["empty", "not text", "cut", "nan", "infinity", "digits", "deep", "surrogate", "many lists", "large"],
)
def test_what_is_no_document_or_too_much_of_one_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_document(data)


@pytest.mark.parametrize("text", ["Jörg \U0001f600", "J\udcf6rg", "\ud83d \U0001f600"])
def test_whatever_text_is_written_can_be_read(text: str) -> None:
    """Before, a name in Latin-1 made a record that stopped all jobs of its table."""
    for indent in (None, 2):
        found = parse_document(encode_document({"by": text, text: [1]}, indent=indent))
        assert found["by"] == text.encode(errors="replace").decode()
        assert found[found["by"]] == [1]


@pytest.mark.parametrize("value", [-1, 2**64, 10**4000, True, 1.0, "1", None, []])
def test_number_is_whole_and_has_at_most_64_bits(value: object) -> None:
    with pytest.raises(MalformedError):
        as_number(value)


def test_largest_number_is_read() -> None:
    assert as_number(2**64 - 1) == 2**64 - 1


@pytest.mark.parametrize(
    "value",
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "9999-12-31T23:59:59+00:00",
        "1969-12-31T23:59:59Z",
        "2026-01-01T00:00:00",
        "soon",
        1,
        None,
    ],
)
def test_moment_that_arithmetic_could_not_take_is_refused(value: object) -> None:
    with pytest.raises(MalformedError):
        as_moment(value)


def test_text_is_nothing_else() -> None:
    with pytest.raises(MalformedError):
        as_text({"a": 1})


@pytest.mark.parametrize(
    "data",
    [
        _LEASE % ("18446744073709551616", '"2026-01-01T00:00:00Z"'),
        _LEASE % ("1", '"9999-12-31T23:59:59.999999Z"'),
        _LEASE % ("1", '"0001-01-01T00:00:00+23:59"'),
        _LEASE % ("true", '"2026-01-01T00:00:00Z"'),
        "[" * 100_000,
    ],
)
def test_lease_beyond_the_bounds_is_corrupt(data: str) -> None:
    with pytest.raises(CorruptionError):
        decode_lease(data.encode(), "somewhere")


@pytest.mark.parametrize(
    ("table", "progress"),
    [
        (_TABLE % 0, "{}"),
        (_TABLE % 10**30, "{}"),
        (_TABLE % "1e308", "{}"),
        ("null", '{"00000000-0000-0000-0000-000000000000": -1}'),
        ("null", '{"00000000-0000-0000-0000-000000000000": 1e999}'),
    ],
)
def test_record_beyond_the_bounds_is_corrupt(table: str, progress: str) -> None:
    with pytest.raises(CorruptionError):
        decode_record((_RECORD % (table, progress)).encode(), "somewhere")


def test_history_beyond_the_bounds_is_corrupt() -> None:
    run = (
        '{"run_id": "a", "holder": "b", "fencing_token": 1, "outcome": "running",'
        ' "started": "0001-01-01T00:00:00+23:00",'
        ' "ended": null, "error": "", "verdict": "", "facts": {}}'
    )
    with pytest.raises(CorruptionError):
        decode_history(f'{{"runs": [{run}], "forgotten": 0}}'.encode(), JobKey("merge"), "somewhere")
    with pytest.raises(CorruptionError):
        decode_history(b'{"runs": [], "forgotten": 1e999}', JobKey("merge"), "somewhere")
