"""Routing: which rows belong to which region. Every row has exactly one (SPEC-30)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_spec.model import RegionSpec
from memwal_core.format.region_spec.region_value import RegionValue
from memwal_core.region.spec.columns import Column
from memwal_core.region.spec.evaluate import evaluate_spec

_SMALL_GROUPS = 2**16
"""Below this, group numbers are sorted as 16-bit numbers, which NumPy does in linear time."""


class RoutedRows(NamedTuple):
    """The rows of one region, in the order in which they came."""

    value: RegionValue
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows grouped by region value: the group of each row, and the value of each group by first appearance."""

    numbers: npt.NDArray[np.int64]
    values: list[RegionValue]


class RegionRouter:
    """Divides rows by a region spec. Keeps no state between calls; safe to share and to pickle.

    ``field_ids`` maps every top-level column of the table's schema to its field id.
    """

    def __init__(self, spec: RegionSpec, field_ids: Mapping[str, int]) -> None:
        self.spec = spec
        used = {source_id for field in spec.fields for source_id in field.source_ids}
        self._sources = {name: field_id for name, field_id in field_ids.items() if field_id in used}

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns that decide a row's region."""
        return tuple(self._sources)

    def route(self, rows: pa.Table | pa.RecordBatch) -> list[RoutedRows]:
        """Divide rows by region, keeping their order within each region.

        One entry per region value that occurs, by first appearance; together they hold every row exactly
        once. Rows must have every source column that the table's schema has.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if not table.num_rows:
            return []
        groups = self._groups(table)
        if len(groups.values) == 1:
            return [RoutedRows(groups.values[0], table)]
        numbers = groups.numbers.astype(np.uint16) if len(groups.values) <= _SMALL_GROUPS else groups.numbers
        gathered = table.take(pa.array(np.argsort(numbers, kind="stable")))
        ends = np.cumsum(np.bincount(groups.numbers)).tolist()
        starts = [0, *ends[:-1]]
        return [
            RoutedRows(value, gathered.slice(start, end - start))
            for value, start, end in zip(groups.values, starts, ends, strict=True)
        ]

    def values(self, rows: pa.Table | pa.RecordBatch) -> list[RegionValue]:
        """Return the distinct region values among rows, in the order of first appearance.

        The same evaluation as ``route``, so a reader that visits only these regions for a set of keys
        cannot miss one. Only the source columns are needed.
        """
        return self._groups(rows).values if rows.num_rows else []

    def _groups(self, rows: pa.Table | pa.RecordBatch) -> _Groups:
        columns: dict[int, Column] = {}
        for name, field_id in self._sources.items():
            position = rows.schema.get_field_index(name)
            if position < 0:
                raise InvalidRequestError(
                    "the rows lack a column that decides their region",
                    remedy="pass every source column of the region spec, exactly once",
                    column=name,
                    spec_id=self.spec.spec_id,
                )
            columns[field_id] = rows.column(position)
        return _grouped(evaluate_spec(self.spec, columns, rows.num_rows), rows.num_rows)


def _grouped(fields: Sequence[pa.Array], num_rows: int) -> _Groups:
    """Number the distinct combinations of the fields' values in the order of first appearance."""
    numbers = np.zeros(num_rows, np.int64)
    values: list[RegionValue] = [()]
    for field in fields:
        encoded = pc.dictionary_encode(field, null_encoding="encode")
        components = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        combined = pc.dictionary_encode(pa.array(numbers * len(components) + codes))
        numbers = combined.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        values = [
            (*values[code // len(components)], components[code % len(components)])
            for code in combined.dictionary.to_pylist()
        ]
    return _Groups(numbers, values)
