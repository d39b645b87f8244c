"""Rows as callers have them: whatever can hand them over as Arrow data."""

from __future__ import annotations

import pyarrow as pa

from memwal_core.errors import InvalidRequestError

_PROTOCOLS = ("__arrow_c_stream__", "__arrow_c_array__")


def as_table(rows: object) -> pa.Table:
    """Return rows as a table, read whole: a stream gives them once.

    Args:
        rows: A table or record batch, or what speaks Arrow's C stream or array interface, such as a data frame.

    Raises:
        InvalidRequestError: It is none of these, or what it hands over cannot be read.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, type) or not any(hasattr(rows, protocol) for protocol in _PROTOCOLS):
        raise InvalidRequestError(
            "the batch is neither a table nor a record batch of Arrow, and hands over no Arrow data",
            remedy="pass a table, a record batch, or a data frame; pyarrow.table(rows) takes columns by name",
            found=type(rows).__name__,
        )
    try:
        return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise InvalidRequestError(
            "the batch cannot be read as a table of Arrow",
            remedy="pass pyarrow.table(rows)",
            found=type(rows).__name__,
            cause=str(error),
        ) from error
