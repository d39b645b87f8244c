import random

import mmh3
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.region.spec.murmur3 import murmur3_multi
from memwal_core.region.spec.transforms import bucket_of_hash

ROWS = 100_000
INT32_MIN = -(2**31)


def byte_form(value: object) -> bytes:
    if value is None:
        return b""
    if isinstance(value, int):
        return (value & (2**64 - 1)).to_bytes(8, "little")
    return value.encode() if isinstance(value, str) else value


def reference(*columns: list) -> list[int | None]:
    return [
        None if all(value is None for value in row) else mmh3.hash(b"".join(map(byte_form, row)), 0, signed=True)
        for row in zip(*columns, strict=True)
    ]


def random_integers(rng: random.Random, rows: int) -> list[int | None]:
    return [None if rng.random() < 0.1 else rng.getrandbits(64) - 2**63 for _ in range(rows)]


def random_texts(rng: random.Random, rows: int) -> list[str | None]:
    return [None if rng.random() < 0.1 else "".join(rng.choices("aé🎉z", k=rng.randrange(14))) for _ in range(rows)]


@pytest.mark.req("SPEC-25", "SPEC-29", "G-02")
def test_hundred_thousand_random_integers_equal_the_reference():
    values = random_integers(random.Random(1), ROWS)
    found = murmur3_multi([pa.array(values, pa.int64())])
    assert found.type == pa.int32()
    assert found.to_pylist() == reference(values)
    assert found.null_count > 0
    assert any(value is not None and value < 0 for value in found.to_pylist())


@pytest.mark.req("SPEC-25", "SPEC-29")
def test_hundred_thousand_random_texts_equal_the_reference():
    values = random_texts(random.Random(2), ROWS)
    assert murmur3_multi([pa.array(values)]).to_pylist() == reference(values)


@pytest.mark.req("SPEC-26", "SPEC-29")
def test_hundred_thousand_random_composites_equal_the_reference():
    rng = random.Random(3)
    texts, numbers, more = random_texts(rng, ROWS), random_integers(rng, ROWS), random_texts(rng, ROWS)
    found = murmur3_multi([pa.array(texts), pa.array(numbers, pa.int64()), pa.array(more, pa.large_string())])
    assert found.to_pylist() == reference(texts, numbers, more)


@pytest.mark.req("SPEC-26")
def test_null_columns_are_skipped_until_none_is_left():
    first, second = pa.array([None, None, 5], pa.int64()), pa.array([123, None, None], pa.int64())
    alone = murmur3_multi([pa.array([123, None, 5], pa.int64())])
    assert murmur3_multi([first, second]).equals(alone)


@pytest.mark.req("SPEC-25")
def test_empty_text_hashes_to_zero_and_not_to_null():
    assert murmur3_multi([pa.array(["", None])]).to_pylist() == [0, None]


@pytest.mark.req("SPEC-25", "SPEC-26")
@pytest.mark.parametrize("length", [1023, 1024, 1025, 70_000])
def test_long_values_equal_the_reference_in_any_position(length):
    texts, numbers = ["a", "x" * length, None, "bcd"], [1, 2, 3, None]
    text_column, number_column = pa.array(texts), pa.array(numbers, pa.int64())
    assert murmur3_multi([text_column]).to_pylist() == reference(texts)
    assert murmur3_multi([number_column, text_column]).to_pylist() == reference(numbers, texts)
    assert murmur3_multi([text_column, number_column]).to_pylist() == reference(texts, numbers)


@pytest.mark.req("SPEC-25")
@pytest.mark.parametrize(
    "array",
    [
        pa.array(["skipped", "abc", None, "defgh", ""]),
        pa.array([b"skipped", b"abc", None, b"\xff", b""], pa.large_binary()),
        pa.array([b"abcde", b"12345", None, b"\0\0\0\0\0", b"fghij"], pa.binary(5)),
        pa.array([9, 5, None, -1, 123], pa.int8()),
        pa.array([True, False, None, True, True]),
    ],
    ids=lambda array: str(array.type),
)
def test_slice_of_an_array_hashes_like_its_values(array):
    sliced = array.slice(1, 3)
    assert murmur3_multi([sliced]).to_pylist() == reference(sliced.to_pylist())


@pytest.mark.req("SPEC-25")
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.binary(), pa.binary(3), pa.null(), pa.date32()])
def test_no_rows_give_no_hashes(kind):
    assert murmur3_multi([pa.array([], kind)]).equals(pa.array([], pa.int32()))


@pytest.mark.req("G-02")
@pytest.mark.parametrize("kind", [pa.date32(), pa.time32("s"), pa.date64(), pa.timestamp("us"), pa.duration("s")])
def test_temporal_values_hash_as_their_stored_integer(kind):
    stored = pa.array([0, 86_400_000, None], pa.int32() if kind.bit_width == 32 else pa.int64())
    assert murmur3_multi([stored.view(kind)]).equals(murmur3_multi([stored]))


@pytest.mark.req("G-02")
@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(5, 2), pa.list_(pa.int64())])
def test_type_without_byte_form_is_refused(kind):
    with pytest.raises(InvalidRequestError) as refusal:
        murmur3_multi([pa.array([None], kind)])
    assert refusal.value.facts["type"] == str(kind)


@pytest.mark.req("SPEC-27", "D-30")
@pytest.mark.parametrize("buckets", [1, 2, 3, 10, 2**31 - 1])
def test_smallest_hash_lies_in_a_bucket(buckets):
    found = bucket_of_hash(pa.array([INT32_MIN, -1, 0, 2**31 - 1, None], pa.int32()), buckets)
    assert found.to_pylist() == [2**31 % buckets, 1 % buckets, 0, (2**31 - 1) % buckets, None]
    assert found.type == pa.int32()
