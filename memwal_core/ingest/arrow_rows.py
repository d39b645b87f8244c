"""The rows of a small batch, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.ids import RegionId
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.batch import RegionRows, combined_hash, keys_digest
from memwal_core.ingest.ingestion import BatchRequest, CheckedRows, RegionCounts
from memwal_core.ingest.share import RegionShare, ShareOutcome, write_share
from memwal_core.region.spec.columns import plain_array
from memwal_core.storage.concurrent import map_concurrently

_ATTEMPT = "1"
_WRITERS = 4
"""Regions that are written at once; each has a MemTable."""
_ALONG = "memwal:along:"
"""Begins the names of the columns that arrange rows; users give columns shorter names, also such as ``__order``."""
_NAN = f"{_ALONG}nan"
_ORDER = f"{_ALONG}order"
_SEQUENCE = f"{_ALONG}sequence"

RowsCheck = Callable[[pa.Table], None]
"""Checks the rows to write; raises ``InvalidRequestError`` to refuse them all."""


class ArrowRows:
    """All rows of a batch, in memory, where they are copied some three times. A form of ``BatchRows``."""

    def __init__(
        self,
        rows: pa.Table,
        admission: RowAdmission,
        table: BaseTable,
        request: BatchRequest,
        check: RowsCheck | None = None,
    ) -> None:
        self._rows = rows
        self._admission = admission
        self._table = table
        self._request = request
        self._check = check
        self._parts: Mapping[str, pa.Table] = {}

    @property
    def names(self) -> Sequence[str]:
        """All columns."""
        return list(self._rows.schema.names)

    def schema(self) -> pa.Schema:
        """Return the columns that belong to rows."""
        return self._values().schema

    def count(self) -> CheckedRows:
        """Check all rows and divide them by region."""
        along = pa.table({_SEQUENCE: np.arange(self._rows.num_rows)})
        if self._request.order_by is not None:
            along = _with_order(along, self._rows.column(self._request.order_by), self._request.order_by)
        examined = self._admission.examine(self._values(), along, as_stored=True)
        if examined.problem is not None:
            return CheckedRows({}, examined.problem.rows, (examined.problem,))
        self._parts = dict(examined.parts)
        return CheckedRows({value: self._counts(part) for value, part in self._parts.items()})

    def _counts(self, part: pa.Table) -> RegionCounts:
        deletes = pc.sum(part.column(TOMBSTONE_COLUMN)).as_py() or 0
        keys = keys_digest(combined_hash(part, self._admission.key))
        return RegionCounts(RegionRows(part.num_rows, keys), deletes)

    def expect(self) -> None:
        """Check the rows by users' suites."""
        if self._check is None:
            return
        column = self._request.delete_column
        rows = self._values()
        if column is not None:
            rows = rows.filter(pc.invert(pc.fill_null(rows.column(column), False))).drop_columns([column])
        self._check(rows)

    def write(
        self, regions: Mapping[str, RegionId], counts: Mapping[str, RegionCounts], written: int
    ) -> list[ShareOutcome]:
        """Write the regions, a few at once."""
        request, done, lock = self._request, written, Lock()

        def write(value: str) -> ShareOutcome:
            nonlocal done
            share = RegionShare(request.batch, value, regions[value], request.takeover, _ATTEMPT)
            outcome = write_share(self._table, share, [self._arranged(value)])
            with lock:
                done += 1
                request.progress(done, len(counts))
            return outcome

        return map_concurrently(write, regions, _WRITERS)

    def _values(self) -> pa.Table:
        order_by = self._request.order_by
        if order_by is None or order_by in self._admission.schema.names:
            return self._rows
        return self._rows.drop_columns([order_by])

    def _arranged(self, value: str) -> pa.Table:
        """Return a region's rows, those of one key together and the newest of them last, as Spark orders them."""
        part = self._parts[value]
        extra = [name for name in (_NAN, _ORDER, _SEQUENCE) if name in part.schema.names]
        by = [(name, "ascending", "at_start") for name in (*self._admission.key, *extra)]
        return part.take(pc.sort_indices(part, sort_keys=by)).drop_columns(extra)


def _with_order(along: pa.Table, column: pa.ChunkedArray, name: str) -> pa.Table:
    """Add what rows of a key are ordered by; to Spark, NaN is larger than any number, and NULL smaller.

    Raises:
        InvalidRequestError: Values of this type have no order.
    """
    order = plain_array(column)
    if pa.types.is_floating(order.type):
        order = order.cast(pa.float64())
        along = along.append_column(_NAN, pc.is_nan(order))
    try:
        pc.sort_indices(order.slice(0, 1))
    except pa.ArrowException:
        raise InvalidRequestError(
            "rows cannot be ordered by a column of this type",
            remedy="name a column of numbers, times or texts",
            order_by=name,
            type=str(column.type),
        ) from None
    return along.append_column(_ORDER, order)
