"""Murmur3 (x86, 32 bits, seed 0) over whole columns, equal to mmh3 row by row.

The hash state of all rows is carried through the columns, one vector operation per four bytes,
so a composite key needs no concatenated copy. A column that ends inside a four-byte word leaves
up to three waiting bytes per row, which the next column's first word completes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.region.spec.byte_form import ByteStrings, Longs, Mask, byte_form

_Words: TypeAlias = npt.NDArray[np.uint32]

_BLOCK_ROWS = 32_768
"""Rows hashed at a time: the vectors of a block stay in the processor's cache."""

_LONG_BYTES = 1024
"""Values longer than this are hashed one by one: a vector step per word of the one longest value
would dominate, while a call per such row is nothing against its bytes."""

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_WORD = np.uint64(0xFFFFFFFF)


def murmur3_multi(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the hash of each row's non-NULL values, concatenated in column order, as int32.

    Takes at least one plain array of a hashable type. NULL only where every column is NULL.
    """
    forms = [byte_form(column) for column in columns]
    rows = len(columns[0])
    hashes = np.empty(rows, np.uint32)
    for start in range(0, rows, _BLOCK_ROWS):
        block = slice(start, min(start + _BLOCK_ROWS, rows))
        hashes[block] = _hash_block([_slice(form, block) for form in forms], block.stop - block.start)
    return pa.array(hashes.view(np.int32), mask=_all_null(forms))


def _slice(form: Longs | ByteStrings, block: slice) -> Longs | ByteStrings:
    valid = None if form.valid is None else form.valid[block]
    if isinstance(form, Longs):
        return Longs(form.values[block], valid)
    return ByteStrings(form.data, form.starts[block], form.lengths[block], valid)


def _all_null(forms: Sequence[Longs | ByteStrings]) -> Mask | None:
    null: Mask | None = None
    for form in forms:
        if form.valid is None:
            return None
        null = ~form.valid if null is None else null & ~form.valid
    return null


def _hash_block(forms: Sequence[Longs | ByteStrings], rows: int) -> _Words:
    state = _State(rows)
    long = np.zeros(rows, np.bool_)
    for form in forms:
        if isinstance(form, Longs):
            state.append_longs(form)
            continue
        too_long = form.lengths > _LONG_BYTES
        long |= too_long
        state.append_bytes(form, np.where(too_long, 0, form.lengths))
    hashes = state.finish()
    for row in np.flatnonzero(long).tolist():
        hashes[row] = mmh3.hash(b"".join(_bytes_of(form, row) for form in forms), 0, signed=False)
    return hashes


def _bytes_of(form: Longs | ByteStrings, row: int) -> bytes:
    if form.valid is not None and not form.valid[row]:
        return b""
    if isinstance(form, Longs):
        return int(form.values[row]).to_bytes(8, "little")
    start = form.starts[row]
    return form.data[start : start + form.lengths[row]].tobytes()


class _State:
    """The hashes of one block of rows while their bytes arrive."""

    def __init__(self, rows: int) -> None:
        self._hash = np.zeros(rows, np.uint32)
        self._total = np.zeros(rows, np.uint32)
        self._waiting = np.zeros(rows, np.uint32)
        """Bytes that do not fill a word yet, as a little-endian number."""
        self._waiting_bytes: npt.NDArray[np.int64] | None = None
        """How many those are (0 to 3) in each row; None while no row has any."""

    def append_longs(self, column: Longs) -> None:
        """Take in the eight bytes of every row that is not NULL."""
        low, high, rest = self._shifted(column.values)
        mixed = _mixed(_mixed(self._hash, low), high)
        if column.valid is None:
            self._hash, self._waiting = mixed, rest
            self._total += np.uint32(8)
        else:
            self._hash = np.where(column.valid, mixed, self._hash)
            self._waiting = np.where(column.valid, rest, self._waiting)
            self._total += np.where(column.valid, np.uint32(8), np.uint32(0))

    def _shifted(self, values: npt.NDArray[np.uint64]) -> tuple[_Words, _Words, _Words]:
        """Return the two words that values complete behind the waiting bytes, and what then waits."""
        if self._waiting_bytes is None:
            return (values & _WORD).astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32), self._waiting
        bits = (self._waiting_bytes * 8).astype(np.uint64)
        low = (values << bits) & _WORD | self._waiting
        # Two shifts, because one by 64 bits (nothing waiting) is undefined.
        above = values >> (np.uint64(32) - bits)
        return low.astype(np.uint32), (above & _WORD).astype(np.uint32), (above >> np.uint64(32)).astype(np.uint32)

    def append_bytes(self, column: ByteStrings, lengths: npt.NDArray[np.int64]) -> None:
        """Take in the first ``lengths`` bytes of every row's value."""
        words = np.ndarray(len(column.data) - 3, np.dtype("<u4"), column.data, strides=(1,))
        # The stream of a row begins with its waiting bytes, so its words begin that much earlier.
        waiting = self._waiting_bytes
        begin = column.starts if waiting is None else column.starts - waiting
        available = lengths if waiting is None else lengths + waiting
        full = available >> 2
        rows: npt.NDArray[np.int64] | None = None
        for step in range(int(full.max(initial=0))):
            if rows is not None or int(full.min()) <= step:
                rows = np.flatnonzero(full > step) if rows is None else rows[full[rows] > step]
            if rows is None:
                self._hash = _mixed(self._hash, self._completed(words[begin + 4 * step], None, step))
            else:
                word = self._completed(words[begin[rows] + 4 * step], rows, step)
                self._hash[rows] = _mixed(self._hash[rows], word)
        rest = available & 3
        tail = words[begin + 4 * full]
        if waiting is not None:
            tail = np.where(full == 0, _behind(tail, self._waiting, waiting), tail)
        self._waiting = tail & _low_bytes(rest)
        self._waiting_bytes = rest if rest.any() else None
        self._total += lengths.astype(np.uint32)

    def _completed(self, word: _Words, rows: npt.NDArray[np.int64] | None, step: int) -> _Words:
        if step or self._waiting_bytes is None:
            return word
        if rows is None:
            return _behind(word, self._waiting, self._waiting_bytes)
        return _behind(word, self._waiting[rows], self._waiting_bytes[rows])

    def finish(self) -> _Words:
        """Return the hashes of all bytes taken in."""
        hashes = self._hash ^ _scrambled(self._waiting) ^ self._total
        hashes ^= hashes >> np.uint32(16)
        hashes *= np.uint32(0x85EBCA6B)
        hashes ^= hashes >> np.uint32(13)
        hashes *= np.uint32(0xC2B2AE35)
        hashes ^= hashes >> np.uint32(16)
        return hashes


def _low_bytes(count: npt.NDArray[np.int64]) -> _Words:
    """Return masks that keep the first ``count`` (0 to 3) bytes of a word."""
    return np.left_shift(np.uint32(1), (count * 8).astype(np.uint32)) - np.uint32(1)


def _behind(word: _Words, waiting: _Words, count: npt.NDArray[np.int64]) -> _Words:
    """Return words whose first ``count`` bytes are replaced by the waiting ones."""
    return (word & ~_low_bytes(count)) | waiting


def _scrambled(word: _Words) -> _Words:
    mixed = word * _C1
    mixed = (mixed << np.uint32(15)) | (mixed >> np.uint32(17))
    mixed *= _C2
    return mixed


def _mixed(state: _Words, word: _Words) -> _Words:
    mixed = state ^ _scrambled(word)
    mixed = (mixed << np.uint32(13)) | (mixed >> np.uint32(19))
    mixed *= np.uint32(5)
    mixed += np.uint32(0xE6546B64)
    return mixed
