"""Finding which rows of a table have one of many given keys, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.deduplicate import numbered_columns

_ROW = "__row"
_POSITION = "__position"
_DENSE_FACTOR = 16
_DENSE_FLOOR = 1 << 20
_SPARSE_FACTOR = 8
_MOST_BITS = 24
"""Bits of a flag's number when keys share flags: 16 MiB of flags."""

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""Fibonacci hashing: the upper bits of the product are spread evenly, also for values that follow each other. It is
odd, so that different values have different products."""

_UINT64 = 2**64 - 1


class KeySearch:
    """A set of primary keys (not NULL, each once) to look rows up in.

    Integers are found in a table of flags, other single columns by hashing, composite keys by a semi join. Without key
    columns nothing is found, because no row replaces another.
    """

    def __init__(self, keys: pa.Table, key: Sequence[str]) -> None:
        self._key = list(key)
        self._keys = keys.select(self._key)
        self._integers: _Integers | None = None
        if len(self._key) == 1 and pa.types.is_integer(keys.schema.field(self._key[0]).type):
            self._integers = _Integers(self._keys.column(0).to_numpy())

    def __len__(self) -> int:
        """Return the number of keys."""
        return int(self._keys.num_rows)

    def found(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Tell for each row whether its key is in the set; key columns must have the types of the keys."""
        if not rows.num_rows or not self._keys.num_rows or not self._key:
            return np.zeros(rows.num_rows, dtype=bool)
        if self._integers is not None:
            return self._integers.found(rows.column(self._key[0]).to_numpy())
        if len(self._key) == 1:
            values = self._keys.column(0).combine_chunks()
            hits = pc.is_in(rows.column(self._key[0]), value_set=values)
            return np.asarray(hits.to_numpy(), dtype=bool)
        columns, names = numbered_columns(rows, self._key)
        numbered = columns.append_column(_ROW, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        wanted, _ = numbered_columns(self._keys, self._key)
        matched = numbered.join(wanted, keys=names, join_type="left semi").column(_ROW).to_numpy()
        mask = np.zeros(rows.num_rows, dtype=bool)
        mask[matched] = True
        return mask

    def places(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Return a number for the key of each row, from 0 and below the length; every row's key is in the set."""
        if self._integers is not None:
            return self._integers.ranks(rows.column(self._key[0]).to_numpy())
        if len(self._key) == 1:
            values = self._keys.column(0).combine_chunks()
            found = pc.index_in(rows.column(self._key[0]), value_set=values)
        else:
            found = positions(rows, self._keys, self._key)
        return np.asarray(found, dtype=np.int64)


class _Integers:
    """Integer keys in a table of flags: one per value if they lie close together, else shared ones."""

    def __init__(self, values: npt.NDArray[np.integer]) -> None:
        self._sorted = np.sort(_wide(values))
        self._low = np.uint64(int(self._sorted[0]) & _UINT64) if len(values) else np.uint64(0)
        span = int(self._sorted[-1]) - int(self._sorted[0]) if len(values) else 0
        self._is_dense = span < max(_DENSE_FACTOR * len(values), _DENSE_FLOOR)
        bits = min(_MOST_BITS, (_SPARSE_FACTOR * len(values)).bit_length())
        self._shift = np.uint64(64 - bits)
        # If dense, one more flag, never set, stands for all values outside.
        self._flags = np.zeros(span + 2 if self._is_dense else 1 << bits, dtype=bool)
        self._flags[self._places(self._sorted)] = True

    def found(self, values: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        values = _wide(values)
        hits: npt.NDArray[np.bool_] = self._flags[self._places(values)]
        if self._is_dense:
            return hits
        # A few other values share the flags of keys, so candidates are compared.
        candidates = np.flatnonzero(hits)
        wanted = values[candidates]
        places = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        hits[candidates] = self._sorted[places] == wanted
        return hits

    def ranks(self, values: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        ranks: npt.NDArray[np.int64] = np.searchsorted(self._sorted, _wide(values))
        return ranks

    def _places(self, values: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        numbers = values.view(np.uint64)
        if self._is_dense:
            # Below the lowest value the difference wraps around to something large.
            within = np.minimum(numbers - self._low, np.uint64(len(self._flags) - 1))
        else:
            within = (numbers * MIXER) >> self._shift
        places: npt.NDArray[np.int64] = within.view(np.int64)
        return places


def _wide(values: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """Return the values in 64 bits, in which the distance of two that lie close together fits."""
    return values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)


def positions(rows: pa.Table, among: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return for each row the position of the row of ``among`` (each key once) that has its key, or NULL."""
    (left, names), (right, _) = numbered_columns(rows, key), numbered_columns(among, key)
    left = left.append_column(_ROW, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    right = right.append_column(_POSITION, pa.array(np.arange(among.num_rows, dtype=np.int64)))
    joined = left.join(right, keys=names, join_type="left outer").select([_ROW, _POSITION])
    return joined.sort_by(_ROW).column(_POSITION).combine_chunks()
