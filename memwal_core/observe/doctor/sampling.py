"""Draw keys of flushed MemTables such that regions which share keys draw the same ones.

Each region keeps the keys with the smallest hashes. Two independent random samples of large regions would
hardly ever meet; these meet wherever the regions do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import translated
from memwal_core.errors import InvalidRequestError, MemwalError, StoreRefusedError, UnavailableError
from memwal_core.flushed.read import open_generation
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.key_filter import hashes_of
from memwal_core.region.spec import RegionRouter, RegionSpec, RegionValue

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class SampledKeys:
    """A region's sample.

    Attributes:
        region_values: Region values that a spec computes for the sampled rows, as text; None without a spec, or if the
            rows cannot be routed.
    """

    keys: pa.Table
    region_values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SampleBounds:
    """The size of a sample: how many keys per region, drawn from how many rows per region."""

    keys: int
    rows: int


class KeySampler:
    """Draws keys from the generations of one table.

    Args:
        schema: Of the base table; columns of other types are cast to its types.
        field_ids: Top-level column of the base table -> field id.
        only_waiting: Draw from unmerged generations alone: regions of several specs have the same keys in turn.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[str],
        field_ids: Mapping[str, int],
        storage_options: Mapping[str, str],
        bounds: SampleBounds,
        *,
        only_waiting: bool = False,
    ) -> None:
        self._key = list(key)
        self._types = {field.name: field.type for field in schema}
        self._field_ids = field_ids
        self._storage_options = storage_options
        self._bounds = bounds
        self.only_waiting = only_waiting

    def draw(self, uris: Sequence[str], spec: RegionSpec | None) -> SampledKeys | None:
        """Draw from a region's generations, the first ones preferred; None if no generation could be read.

        ``spec`` routes the sample; it is None for regions made by hand.
        """
        columns = self._columns(spec)
        kept: pa.Table | None = None
        rows_left = self._bounds.rows
        for uri in uris:
            if rows_left <= 0:
                break
            found = self._read(uri, columns, rows_left)
            if found is None:
                continue
            rows_left -= found.num_rows
            kept = self._smallest(found if kept is None else pa.concat_tables([kept, found]))
        if kept is None:
            return None
        return SampledKeys(kept.select(self._key), self._routed(kept, spec))

    def _columns(self, spec: RegionSpec | None) -> list[str]:
        sources = {source for field in spec.fields for source in field.source_ids} if spec is not None else set()
        return [*self._key, *(name for name, number in self._field_ids.items() if number in sources - self._key_ids())]

    def _key_ids(self) -> set[int]:
        return {self._field_ids[name] for name in self._key}

    def _read(self, uri: str, columns: Sequence[str], limit: int) -> pa.Table | None:
        """Return the rows of a generation; tombstones only if the key alone decides the region."""
        try:
            dataset = open_generation(uri, self._storage_options)
            names = set(dataset.schema.names)
            if not names.issuperset(columns):
                return None  # Columns were renamed or added since then; the merge reports that.
            needs_values = len(columns) > len(self._key) and TOMBSTONE_COLUMN in names
            with translated("sample a flushed MemTable", uri):
                found = dataset.to_table(
                    columns=list(columns),
                    filter=f"{TOMBSTONE_COLUMN} IS NULL OR NOT {TOMBSTONE_COLUMN}" if needs_values else None,
                    limit=limit,
                    batch_size=_BATCH_ROWS,
                )
            rows = found.select(columns).cast(pa.schema([(name, self._types[name]) for name in columns]))
            return rows.filter(whole_keys(rows, self._key))
        except (UnavailableError, StoreRefusedError):
            raise  # It says nothing about the file.
        except (MemwalError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None  # The check of generations reports it, or the merge parks it.

    def _smallest(self, rows: pa.Table) -> pa.Table:
        _, first = np.unique(hashes_of(rows, self._key), return_index=True)
        return rows.take(pa.array(first[: self._bounds.keys]))

    def _routed(self, rows: pa.Table, spec: RegionSpec | None) -> tuple[str, ...] | None:
        if spec is None:
            return None
        try:
            values = RegionRouter(spec, self._field_ids).values(rows)
        except InvalidRequestError:
            return None
        return tuple(shown_value(value) for value in values)


def whole_keys(rows: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """Return which rows have no NULL in their key."""
    return reduce(pc.and_, (pc.is_valid(rows.column(name)) for name in key))


def shown_value(value: RegionValue) -> str:
    """Return a region value as text, equal for equal values."""
    return str(tuple(value))
