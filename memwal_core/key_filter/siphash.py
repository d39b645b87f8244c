"""SipHash-1-3 with a zero key over many messages at once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.int64]

_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_FINAL_ROUNDS = 3
_FINAL_MARK = np.uint64(0xFF)
_WORD_BYTES = 8


def siphash_1_3(data: npt.NDArray[np.uint8], starts: Positions, lengths: Positions) -> Words:
    """Return the hash of each message, equal to Rust's default hasher over the same bytes.

    Args:
        data: The bytes of all messages.
        starts: Where each message begins.
        lengths: Its bytes.
    """
    hashes = np.empty(len(starts), np.uint64)
    # The last word holds the length, so a message of whole words has one word more.
    counts = lengths // _WORD_BYTES + 1
    padded = np.concatenate([data, np.zeros(_WORD_BYTES, np.uint8)])
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        hashes[rows] = _hash_group(padded, starts[rows], lengths[rows], count)
    return hashes


def _hash_group(data: npt.NDArray[np.uint8], starts: Positions, lengths: Positions, count: int) -> Words:
    v0, v1, v2, v3 = (np.full(len(starts), value, np.uint64) for value in _INITIAL)
    offsets = np.arange(_WORD_BYTES)
    for word_number in range(count):
        begin = starts + word_number * _WORD_BYTES
        if word_number < count - 1:
            word = data[begin[:, None] + offsets].view("<u8").ravel()
        else:
            left = lengths - word_number * _WORD_BYTES
            taken = np.where(offsets < left[:, None], data[np.minimum(begin[:, None] + offsets, len(data) - 1)], 0)
            word = taken.astype(np.uint8).view("<u8").ravel() | (lengths.astype(np.uint64) & _FINAL_MARK) << np.uint64(
                56
            )
        v3 = v3 ^ word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 = v0 ^ word
    v2 = v2 ^ _FINAL_MARK
    for _ in range(_FINAL_ROUNDS):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _round(v0: Words, v1: Words, v2: Words, v3: Words) -> tuple[Words, Words, Words, Words]:
    v0 = v0 + v1
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = v2 + v3
    v3 = _rotated(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = _rotated(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _rotated(value: Words, bits: int) -> Words:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))
