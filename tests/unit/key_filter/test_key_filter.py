import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.errors import CorruptionError
from memwal_core.key_filter import KeyFilter, pylance_filter
from memwal_core.key_filter.filter import _digest
from memwal_core.key_filter.siphash import siphash_1_3

RATE = 0.01


def _table(values, data_type) -> pa.Table:
    return pa.table({"k": pa.array(values, data_type)})


def _messages(messages: list[bytes]):
    lengths = np.array([len(message) for message in messages], np.int64)
    return np.frombuffer(b"".join(messages), np.uint8), np.cumsum(lengths) - lengths, lengths


def _siphash(message: bytes) -> int:
    """SipHash-1-3, key 0, one message at a time: the definition."""
    mask = (1 << 64) - 1
    v = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> 64 - bits) & mask

    def mix() -> None:
        for a, b, c, d, left, right in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
            v[a] = (v[a] + v[b]) & mask
            v[b] = rotate(v[b], left) ^ v[a]
            v[a] = rotate(v[a], 32)
            v[c] = (v[c] + v[d]) & mask
            v[d] = rotate(v[d], right) ^ v[c]

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        mix()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        mix()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30))
def test_many_messages_at_once_hash_like_each_alone(messages: list[bytes]) -> None:
    assert siphash_1_3(*_messages(messages)).tolist() == [_siphash(message) for message in messages]


@pytest.mark.req("WRT-49", "G-04")
def test_a_hundred_thousand_keys_have_no_false_negative_and_few_false_positives() -> None:
    keys = _table(np.arange(100_000) * 2, pa.int64())
    filtered = KeyFilter.of(keys, ["k"], RATE)
    assert filtered.may_contain(keys).all()
    absent = _table(np.arange(100_000) * 2 + 1, pa.int64())
    assert filtered.may_contain(absent).mean() < RATE
    assert len(filtered.to_bytes("a")) < 100_000 * 2


@pytest.mark.req("WRT-49")
@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        ([1, -1, 5], pa.int8()),
        ([1, 2**64 - 1], pa.uint64()),
        ([True], pa.bool_()),
        (["", "a", "é" * 50], pa.string()),
        (["a", "b"], pa.large_string()),
        ([b"", b"x" * 9], pa.binary()),
        ([b"", b"x" * 9], pa.large_binary()),
    ],
)
def test_every_key_type_finds_its_own_keys(values, data_type) -> None:
    keys = _table(values, data_type)
    assert KeyFilter.of(keys, ["k"], RATE).may_contain(keys).all()


def test_equal_integers_of_other_widths_are_found() -> None:
    filtered = KeyFilter.of(_table([5, -7], pa.int32()), ["k"], RATE)
    assert filtered.may_contain(_table([5, -7], pa.int64())).all()


def test_composite_keys_are_hashed_as_a_whole() -> None:
    keys = pa.table({"a": ["x", "xy"], "b": pa.array([1, 2], pa.int16())})
    filtered = KeyFilter.of(keys, ["a", "b"], 0.0001)
    assert filtered.may_contain(keys).all()
    swapped = pa.table({"a": ["x", "xy"], "b": pa.array([2, 1], pa.int16())})
    assert not filtered.may_contain(swapped).any()


@pytest.mark.req("FMT-19", "LEASE-26")
def test_a_filter_answers_the_same_after_a_round_trip() -> None:
    keys = _table([f"k{i}" for i in range(500)], pa.string())
    filtered = KeyFilter.of(keys, ["k"], RATE)
    back = KeyFilter.from_bytes(filtered.to_bytes("a"), "a")
    probes = _table([f"k{i}" for i in range(2000)], pa.string())
    assert back.may_contain(probes).tolist() == filtered.may_contain(probes).tolist()
    assert back.bounds.column("k").to_pylist() == ["k0", "k99"]
    assert back.keys == 500


@pytest.mark.req("FMT-19", "LEASE-26")
def test_a_changed_or_cut_filter_is_corruption() -> None:
    data = KeyFilter.of(_table([1, 2, 3], pa.int64()), ["k"], RATE).to_bytes("a")
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(CorruptionError):
            KeyFilter.from_bytes(changed, "a")
    for length in (0, 3, len(data) - 1):
        with pytest.raises(CorruptionError):
            KeyFilter.from_bytes(data[:length], "a")
    with pytest.raises(CorruptionError):
        KeyFilter.from_bytes(data, "b")


def test_keys_outside_the_range_are_refused_without_the_bits() -> None:
    filtered = KeyFilter.of(_table([10, 20], pa.int64()), ["k"], 0.999)
    assert filtered.may_contain(_table([9, 21], pa.int64())).tolist() == [False, False]


def test_no_keys_contain_nothing() -> None:
    filtered = KeyFilter.from_bytes(KeyFilter.of(_table([], pa.int64()), ["k"], RATE).to_bytes("a"), "a")
    assert filtered.may_contain(_table([1], pa.int64())).tolist() == [False]


@pytest.mark.req("G-04")
def test_key_types_that_pylance_hashes_wrongly_get_no_filter_of_its_form() -> None:
    assert pylance_filter(_table([1], pa.int16()), ["k"]) is None
    assert len(pylance_filter(_table([1], pa.int64()), ["k"])) == 32 * 1024


def _resealed(data: bytes) -> bytes:
    """Return a filter whose checksum fits its bytes, as whoever forges one makes it."""
    return data[:-8] + struct.pack("<Q", _digest(data[:-8], "a"))


def test_forged_filter_whose_range_is_no_stream_is_corruption() -> None:
    data = KeyFilter.of(_table([1, 2, 3], pa.int64()), ["k"], RATE).to_bytes("a")
    for position in range(28, 28 + 200):
        changed = data[:position] + b"\xff\xff\xff\x7f" + data[position + 4 :]
        try:
            found = KeyFilter.from_bytes(_resealed(changed), "a")
        except CorruptionError:
            continue
        found.may_contain(_table([1, 2, 3], pa.int64()))


def test_forged_filter_of_another_type_or_column_rules_no_key_out() -> None:
    keys = _table([1, 2, 3], pa.int64())
    for other in (_table(["a"], pa.string()), pa.table({"other": pa.array([1], pa.int64())})):
        assert KeyFilter.of(other, other.schema.names, RATE).may_contain(keys).all()


def test_forged_filter_whose_range_has_no_column_is_corruption() -> None:
    """A lookup gave its keys as many names, and Arrow's error was not ours."""
    data = KeyFilter.of(_table([1, 2, 3], pa.int64()), ["k"], RATE).to_bytes("a")
    magic, version, size, blocks, keys = struct.unpack_from("<8sIIIQ", data)
    sink = pa.BufferOutputStream()
    two_rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    with pa.ipc.new_stream(sink, two_rows.schema) as writer:
        writer.write_batch(two_rows)
    stream = sink.getvalue().to_pybytes()
    assert pa.ipc.open_stream(stream).read_all().num_rows == 2
    forged = struct.pack("<8sIIIQ", magic, version, len(stream), blocks, keys) + stream + data[28 + size :]

    with pytest.raises(CorruptionError, match="cannot be read"):
        KeyFilter.from_bytes(_resealed(forged), "a")


def test_forged_filter_without_blocks_is_corruption() -> None:
    data = KeyFilter.of(_table([1, 2, 3], pa.int64()), ["k"], RATE).to_bytes("a")
    magic, version, bounds, _, keys = struct.unpack_from("<8sIIIQ", data)
    forged = struct.pack("<8sIIIQ", magic, version, bounds, 0, keys) + data[28 : 28 + bounds] + bytes(8)
    with pytest.raises(CorruptionError, match="cannot be read"):
        KeyFilter.from_bytes(_resealed(forged), "a")
