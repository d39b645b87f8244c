"""Our own key filter: sized by the number of keys, self-describing, with the range of each key column.

Bytes: 8 bytes of magic; format version, length of the range and number of blocks as 32-bit and number of keys as 64-bit
little-endian integers; the range, an Arrow stream of two rows (smallest and largest value of each key column); the
blocks; XXH3 (64 bits) of everything before, followed by the place of the file, so that a filter that was put beside
another flushed MemTable is refused: it would rule out keys that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from memwal_core.errors import CorruptionError
from memwal_core.key_filter.blocks import BLOCK_BYTES, WORDS, Blocks, block_count, filled_blocks, hits
from memwal_core.key_filter.messages import key_hashes
from memwal_core.native.casting import no_rows
from memwal_core.text import show_count

KEY_FILTER_NAME = "memwal_key_filter.bin"

_MAGIC = b"MEMWALKF"
_FORMAT_VERSION = 1
_BOUNDS = 2
"""Rows of the range: the smallest and the largest value."""
_HEAD = struct.Struct("<8sIIIQ")
_CHECKSUM = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, eq=False)
class KeyFilter:
    """Tells which keys are certainly not in a set.

    Attributes:
        bounds: Two rows, the smallest and largest value of each key column; no rows if there are no keys.
        keys: Number of keys it was built from, duplicates included.
    """

    bounds: pa.Table
    keys: int
    blocks: Blocks

    @classmethod
    def of(
        cls,
        keys: pa.Table,
        columns: Sequence[str],
        false_positive_rate: float,
        hashes: npt.NDArray[np.uint64] | None = None,
    ) -> KeyFilter:
        """Build the filter of some keys: integers, booleans, text or binary, no NULLs; ``columns`` in key order.

        ``false_positive_rate`` is the share of absent keys that may pass, above 0 and below 1.
        """
        named = keys.select(list(columns))
        known = hashes_of(named, columns) if hashes is None else hashes
        blocks = filled_blocks(known, block_count(keys.num_rows, false_positive_rate))
        return cls(_bounds(named), keys.num_rows, blocks)

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> KeyFilter:
        """Read a filter back; ``place`` is where it belongs, as for ``to_bytes``.

        Raises:
            CorruptionError: The bytes are not a filter, or have changed. Read the keys from the flushed MemTable
                instead.
        """
        checked, (checksum,) = data[: -_CHECKSUM.size], _CHECKSUM.unpack_from(data.rjust(_CHECKSUM.size), -8)
        if len(checked) < _HEAD.size or _digest(checked, place) != checksum:
            _refuse("its checksum does not match")
        magic, version, bounds_bytes, blocks, keys = _HEAD.unpack_from(checked)
        start = _HEAD.size + bounds_bytes
        if magic != _MAGIC or version != _FORMAT_VERSION or len(checked) != start + blocks * BLOCK_BYTES:
            _refuse(f"its header is {magic!r}, version {version}")
        bounds = _read_bounds(checked[_HEAD.size : start], keys)
        if keys and not blocks:
            _refuse(f"it has no blocks for {show_count(keys, 'key')}")
        return cls(bounds, keys, np.frombuffer(checked, "<u4", offset=start).reshape(blocks, WORDS))

    def to_bytes(self, place: str) -> bytes:
        """Return the bytes of the file; ``place`` is the directory of its flushed MemTable, relative to the table."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.bounds.schema) as writer:
            writer.write_table(self.bounds)
        bounds = sink.getvalue().to_pybytes()
        head = _HEAD.pack(_MAGIC, _FORMAT_VERSION, len(bounds), len(self.blocks), self.keys)
        data = head + bounds + self.blocks.astype("<u4").tobytes()
        return bytes(data) + _CHECKSUM.pack(_digest(data, place))

    def may_contain(self, keys: pa.Table, hashes: npt.NDArray[np.uint64] | None = None) -> npt.NDArray[np.bool_]:
        """Tell for each key whether it may be in the set; False is certain.

        Keys are not NULL; integers may have another width. ``hashes`` are ``hashes_of`` the keys, to query several
        filters.
        """
        if not self.keys:
            return np.zeros(keys.num_rows, np.bool_)
        columns = self.bounds.schema.names
        if not _comparable(self.bounds.schema, keys.schema):
            return np.ones(keys.num_rows, np.bool_)
        found = hits(self.blocks, hashes_of(keys, columns) if hashes is None else hashes)
        if not found.any():
            return found
        for name in columns:
            low, high = self.bounds.column(name)[0], self.bounds.column(name)[1]
            column = keys.column(name)
            inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
            found &= inside.to_numpy()
        return found


def _comparable(bounds: pa.Schema, keys: pa.Schema) -> bool:
    """Return whether keys can be compared with a range; a range of other columns or types says nothing of them."""
    if not bounds.names or any(bounds.names.count(name) > 1 or name not in keys.names for name in bounds.names):
        return False
    return all(_family(bounds.field(name).type) == _family(keys.field(name).type) for name in bounds.names)


def _family(kind: pa.DataType) -> str:
    """Return what a type of keys is compared as; widths do not count."""
    families = {
        "integer": pa.types.is_integer,
        "boolean": pa.types.is_boolean,
        "text": lambda each: pa.types.is_string(each) or pa.types.is_large_string(each),
        "binary": lambda each: pa.types.is_binary(each) or pa.types.is_large_binary(each),
    }
    return next((name for name, is_kind in families.items() if is_kind(kind)), str(kind))


def _digest(data: bytes, place: str) -> int:
    digest = xxhash.xxh3_64(data)
    digest.update(place.encode())
    return int(digest.intdigest())


def hashes_of(keys: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the hashes by which all filters are queried; ``columns`` are the key columns in key order."""
    return key_hashes(keys, columns, stored_width=False)


def _bounds(keys: pa.Table) -> pa.Table:
    if not keys.num_rows:
        return no_rows(keys.schema.remove_metadata())
    columns = {}
    for name in keys.schema.names:
        column = keys.column(name)
        order = pc.min_max(column)
        columns[name] = pa.array([order["min"].as_py(), order["max"].as_py()], column.type)
    return pa.table(columns)


def _read_bounds(data: bytes, keys: int) -> pa.Table:
    """Return the range of each key column: two rows of values if there are keys.

    Raises:
        CorruptionError: It is none. The checksum fits whatever bytes somebody gave it.
    """
    try:
        with pa.ipc.open_stream(data) as reader:
            bounds = reader.read_all()
        bounds.validate(full=True)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        _refuse(f"its range cannot be read: {error}")
    if keys and (
        not bounds.num_columns or bounds.num_rows != _BOUNDS or any(column.null_count for column in bounds.columns)
    ):
        _refuse(f"its range has {show_count(bounds.num_rows, 'row')}")
    return bounds


def _refuse(problem: str) -> NoReturn:
    """Raise ``CorruptionError``."""
    raise CorruptionError(
        "a key filter cannot be read",
        remedy="run `memwal merge`; until then lookups read the flushed MemTable itself",
        problem=problem,
    )
