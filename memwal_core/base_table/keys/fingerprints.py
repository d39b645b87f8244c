"""Fingerprints of keys: 64 bits that prove, where no two are the same, that every key occurs once.

Equal keys have equal fingerprints, so that keys with different ones are different keys. The other way round proves
nothing: where two are the same, the keys themselves have to be counted (``tally``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table.keys.parts import part_of, rows_by_part
from memwal_core.base_table.keys.search import MIXER
from memwal_core.key_filter.siphash import hash_by_words
from memwal_core.region.spec.byte_form import Longs, byte_form, has_byte_form
from memwal_core.region.spec.columns import plain_array

Fingerprints = npt.NDArray[np.uint64]

FINGERPRINT_BYTES = 8

_BLOCK_ROWS = 1 << 14
"""Keys hashed at once: what is computed meanwhile stays in the processor's cache."""

_HALF = np.uint64(32)

_PIECES_ROWS = 1 << 19
"""Fingerprints that are split at once."""

_HELD_ROWS = 1 << 23
"""Fingerprints that are held at once: 64 MiB, where Lance's query engine takes 100 MB for such questions."""

_MOST_READS = 4
"""How often keys are read at most, before the query engine costs less."""


def split_fingerprints(keys: Iterable[pa.Table], parts: int) -> Iterator[tuple[int, Fingerprints | None]]:
    """Yield the fingerprints of the keys of tables in pieces, each with the number of its part.

    The part is the same wherever a key occurs. A piece is None if a key has no fingerprint, because it has a NULL
    or a type without a byte form.
    """
    waiting: list[Fingerprints] = []
    rows = 0
    for block in _blocks(keys):
        if block is None:
            yield 0, None
            return
        waiting.append(block)
        rows += len(block)
        if rows >= _PIECES_ROWS:
            yield from _split(np.concatenate(waiting), parts)
            waiting, rows = [], 0
    if waiting:
        yield from _split(np.concatenate(waiting), parts)


def count_distinct(pieces: Iterable[Fingerprints | None]) -> int | None:
    """Return the number of keys of a part if each has a fingerprint, and another one; None if that is not so."""
    held: list[Fingerprints] = []
    for piece in pieces:
        if piece is None:
            return None
        held.append(piece)
    return _counted(np.concatenate(held)) if held else 0


def count_distinct_here(read: Callable[[], Iterable[pa.Table]], rows: int) -> int | None:
    """Return the number of keys if each has a fingerprint, and another one, in memory for some of them at a time.

    Args:
        read: Reads all keys, some at a time; called again for those that had no room.
        rows: How many there are.

    Returns:
        None also if there are too many to look at them like this.
    """
    parts = max(1, -(-rows // _HELD_ROWS))
    if parts > _MOST_READS:
        return None
    keys = 0
    for part in range(parts):
        found = _count_part(read(), rows, parts, part)
        if found is None:
            return None
        keys += found
    return keys


def _count_part(keys: Iterable[pa.Table], rows: int, parts: int, part: int) -> int | None:
    # A part that needs more than its share has copies, or keys that were chosen to meet in it.
    held = np.empty(rows if parts == 1 else rows // parts * 9 // 8, np.uint64)
    filled = 0
    for block in _blocks(keys):
        if block is None:
            return None
        own = block if parts == 1 else block[part_of(_numbers(block), parts) == part]
        if filled + len(own) > len(held):
            return None
        held[filled : filled + len(own)] = own
        filled += len(own)
    return _counted(held[:filled])


def _counted(found: Fingerprints) -> int | None:
    found.sort()
    return None if np.any(found[1:] == found[:-1]) else len(found)


def _split(found: Fingerprints, parts: int) -> Iterator[tuple[int, Fingerprints]]:
    if parts == 1:
        yield 0, found
        return
    order, slices = rows_by_part(_numbers(found), parts)
    ordered = found[order]
    for part, begin, end in slices:
        yield part, ordered[begin:end]


def _numbers(found: Fingerprints) -> npt.NDArray[np.uint32]:
    return (found >> _HALF).astype(np.uint32)


def _blocks(keys: Iterable[pa.Table]) -> Iterator[Fingerprints | None]:
    for table in keys:
        if not all(map(has_byte_form, table.schema.types)):
            yield None
            return
        for begin in range(0, table.num_rows, _BLOCK_ROWS):
            block = table.slice(begin, _BLOCK_ROWS)
            yield None if any(column.null_count for column in block.columns) else _fingerprints(block)


def _fingerprints(keys: pa.Table) -> Fingerprints:
    found = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        form = byte_form(plain_array(column))
        if isinstance(form, Longs):
            found = _mixed(found, form.values)
        else:
            found = _mixed(found, hash_by_words(form.data, form.starts, form.lengths, _of_words))
    return found


def _of_words(words: Sequence[Fingerprints]) -> Fingerprints:
    found = np.zeros(len(words[0]), np.uint64)
    for word in words:
        found = _mixed(found, word)
    return found


def _mixed(found: Fingerprints, word: Fingerprints) -> Fingerprints:
    """Return ``found`` with one more word; different words make it different, and all bits depend on each other."""
    mixed = found ^ word
    mixed ^= mixed >> _HALF
    mixed *= MIXER
    mixed ^= mixed >> _HALF
    return mixed
