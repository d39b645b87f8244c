"""Checking the rows of a batch and dividing them by region, piece by piece."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import TableReader
from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.native.casting import cast_rows, no_rows
from memwal_core.region.spec import RegionRouter, RegionSpec, RegionValue, decode_region_value, encode_region_value
from memwal_core.writer.admission.validate import conform
from memwal_core.writer.table_context import choose_spec

_PLACE = "memwal:place"


@dataclass(frozen=True, slots=True)
class RowProblem:
    """Why rows of one column cannot be written.

    Attributes:
        rows: Bad rows in the piece; counted up to 1,000.
    """

    what: str
    column: str
    rows: int
    samples: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """A piece of a batch after its check.

    Attributes:
        parts: Region value as text -> its rows, with ``_tombstone`` instead of the delete column; empty if there is a
            problem.
        problem: The first problem found; None if all rows can be written.
    """

    parts: tuple[tuple[str, pa.Table], ...]
    problem: RowProblem | None


@dataclass(frozen=True, slots=True, eq=False)
class RowAdmission:
    """How rows of a batch become rows of regions. Can be pickled.

    ``delete_column`` is a boolean column of the batch, not of the table, that is true on rows to delete; None if there
    is none.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    spec: RegionSpec
    router: RegionRouter
    delete_column: str | None

    @classmethod
    def of(cls, table: TableReader, spec_id: int | None = None, delete_column: str | None = None) -> Self:
        """Derive it from the newest version of a table; ``spec_id`` may be omitted if the table has exactly one spec.

        Raises:
            InvalidRequestError: The table cannot be written, has no such spec, or cannot hold deletes.
        """
        state = table.state()
        details = table.require_writable(state)
        key = state.require_primary_key().columns
        strict = [field.name for field in state.schema if field.name not in key and not field.nullable]
        if delete_column in state.schema.names:
            raise InvalidRequestError(
                "the delete column is a column of the table",
                remedy="name one that only the batch has",
                delete_column=delete_column,
                columns=state.schema.names,
            )
        if delete_column is not None and strict:
            raise InvalidRequestError(
                "rows of this table cannot be deleted, because a tombstone has NULL values",
                remedy="make the value columns nullable, or leave the delete column out",
                delete_column=delete_column,
                columns_not_nullable=strict,
            )
        spec = choose_spec(details.region_specs, spec_id)
        return cls(state.schema, key, spec, RegionRouter(spec, state.field_ids), delete_column)

    def check_schema(self, schema: pa.Schema) -> None:
        """Check columns and types before any row is read.

        Raises:
            InvalidRequestError: Rows of this schema cannot fit.
        """
        empty = no_rows(schema)
        rows, _ = self._split(empty)
        conform(rows, self.schema, self.key)

    def examine(
        self, rows: pa.Table | pa.RecordBatch, along: pa.Table | None = None, *, as_stored: bool = False
    ) -> Examined:
        """Check rows and divide them by region.

        Bad rows are returned as a problem; wrong columns raise, as in ``check_schema``.

        Args:
            rows: A piece of the batch.
            along: Columns that go with the rows unchecked.
            as_stored: Return rows in the types of the table, instead of those in which they came.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        values, deleted = self._split(table)
        try:
            conformed = conform(values, self.schema, self.key)
        except InvalidRequestError as error:
            if "sample_rows" not in error.facts:
                raise
            return Examined((), _problem(error))
        carried = (conformed if as_stored else values).append_column(TOMBSTONE_COLUMN, deleted)
        for field, column in zip(along.schema, along.columns, strict=True) if along is not None else ():
            carried = carried.append_column(field, column)
        # Rows are routed by the value as it will be stored, not as it came.
        placed = pa.table({_PLACE: np.arange(table.num_rows)})
        for name in self.router.sources:
            placed = placed.append_column(name, conformed.column(name))
        return Examined(
            tuple(
                (self.text_of(part.value), carried.take(part.rows.column(_PLACE))) for part in self.router.route(placed)
            ),
            None,
        )

    def keys_of(self, rows: pa.Table) -> pa.Table:
        """Return the keys of checked rows in the types of the table, of which Spark lacks some."""
        keys = pa.schema([self.schema.field(name) for name in self.key])
        return cast_rows(rows.select(keys.names), keys)

    def text_of(self, value: RegionValue) -> str:
        """Return a region value as text: field id -> hexadecimal bytes, as the region manifest has them."""
        encoded = encode_region_value(self.spec, value)
        return json.dumps({name: encoded[name].hex() for name in sorted(encoded)})

    def value_of(self, text: str) -> RegionValue:
        """Return the region value of ``text_of``."""
        return decode_region_value(self.spec, {name: bytes.fromhex(value) for name, value in json.loads(text).items()})

    def _split(self, rows: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
        """Return the table's columns, and which rows are deletes."""
        if self.delete_column is None:
            return rows, pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
        position = rows.schema.get_field_index(self.delete_column)
        if position < 0 or not pa.types.is_boolean(rows.schema.field(position).type):
            raise InvalidRequestError(
                "the delete column is missing from the batch, or not boolean",
                remedy="name a boolean column of the batch, or no delete column",
                delete_column=self.delete_column,
                found=rows.schema.names,
            )
        return rows.remove_column(position), pc.fill_null(rows.column(position), False)


def _problem(error: InvalidRequestError) -> RowProblem:
    facts = error.facts
    rows = facts.get("null_rows", facts.get("bad_rows"))
    samples = facts["sample_rows"]
    assert isinstance(rows, int)  # noqa: S101 - the check before every write counts them
    assert isinstance(samples, list)  # noqa: S101 - as above
    return RowProblem(error.what.partition(";")[0], str(facts["column"]), rows, tuple(samples))
