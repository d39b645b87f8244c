"""SipHash-1-3 with a zero key over many messages at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.int64]

_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_FINAL_ROUNDS = 3
_FINAL_MARK = np.uint64(0xFF)
_WORD_BYTES = 8
_BYTE = 0xFF


def siphash_1_3(data: npt.NDArray[np.uint8], starts: Positions, lengths: Positions) -> Words:
    """Return the hash of each message, equal to Rust's default hasher over the same bytes; lengths are in bytes."""
    return hash_by_words(data, starts, lengths, siphash_1_3_of_words)


def hash_by_words(
    data: npt.NDArray[np.uint8], starts: Positions, lengths: Positions, hash_words: Callable[[Sequence[Words]], Words]
) -> Words:
    """Return the hash of each message by a function of words; see ``siphash_1_3_of_words`` for what it gets."""
    # The last word holds the length, so a message of whole words has one word more.
    counts = lengths // _WORD_BYTES + 1
    different = np.unique(counts).tolist()
    if len(different) == 1:
        return hash_words(list(_words(data, starts, lengths, different[0]).T))
    hashes = np.empty(len(starts), np.uint64)
    for count in different:
        rows = np.flatnonzero(counts == count)
        hashes[rows] = hash_words(list(_words(data, starts[rows], lengths[rows], count).T))
    return hashes


def siphash_1_3_of_words(words: Sequence[Words]) -> Words:
    """Return the hash of each message; ``words`` has the first word of all messages, then the second, and so on.

    All messages have the same number of words; the last word also holds their length.
    """
    v0, v1, v2, v3 = (np.full(len(words[0]), value, np.uint64) for value in _INITIAL)
    scratch = np.empty_like(v0)
    for word in words:
        v3 ^= word
        _round(v0, v1, v2, v3, scratch)
        v0 ^= word
    v2 ^= _FINAL_MARK
    for _ in range(_FINAL_ROUNDS):
        _round(v0, v1, v2, v3, scratch)
    return v0 ^ v1 ^ v2 ^ v3


def _words(data: npt.NDArray[np.uint8], starts: Positions, lengths: Positions, count: int) -> Words:
    """Return the words of messages that have ``count`` words each, one row per message."""
    width, size = count * _WORD_BYTES, int(lengths[0])
    words = np.zeros((len(starts), width), np.uint8)
    if len(data) == size * len(starts) and bool(np.all(lengths == size)):
        words[:, :size] = data.reshape(len(starts), size)  # All messages lie one after another.
    else:
        # All messages fill every word but the last.
        whole = width - _WORD_BYTES
        words[:, :whole] = _slices(data, starts, whole)
        rest = lengths - whole
        tail = np.zeros(len(data) + _WORD_BYTES, np.uint8)
        tail[: len(data)] = data
        last = _slices(tail, starts + whole, _WORD_BYTES)
        words[:, whole:] = np.where(np.arange(_WORD_BYTES) < rest[:, None], last, 0)
    words[:, -1] = lengths & _BYTE
    return words.view("<u8")


def _slices(data: npt.NDArray[np.uint8], starts: Positions, width: int) -> npt.NDArray[np.uint8]:
    """Return ``width`` bytes from each start, gathered from an overlapping view."""
    if not width:
        return np.zeros((len(starts), 0), np.uint8)
    taken: npt.NDArray[np.uint8] = np.lib.stride_tricks.sliding_window_view(data, width)[starts]
    return taken


def _round(v0: Words, v1: Words, v2: Words, v3: Words, scratch: Words) -> None:
    """Change the state in place: allocating memory in each step would take a third of the time."""
    v0 += v1
    _rotate(v1, 13, scratch)
    v1 ^= v0
    _rotate(v0, 32, scratch)
    v2 += v3
    _rotate(v3, 16, scratch)
    v3 ^= v2
    v0 += v3
    _rotate(v3, 21, scratch)
    v3 ^= v0
    v2 += v1
    _rotate(v1, 17, scratch)
    v1 ^= v2
    _rotate(v2, 32, scratch)


def _rotate(value: Words, bits: int, scratch: Words) -> None:
    np.right_shift(value, np.uint64(64 - bits), out=scratch)
    value <<= np.uint64(bits)
    value |= scratch
