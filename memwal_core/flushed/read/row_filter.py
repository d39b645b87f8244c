"""Filtering the rows of a batch, with vectors at memory speed.

pyarrow filters fixed-size lists one list at a time, which costs more than reading them; as a matrix they are copied row
by row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def kept_rows(batch: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a batch whose flag is set."""
    flags = pa.array(mask)
    columns = [_kept_vectors(column, mask) if _is_matrix(column) else column.filter(flags) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_matrix(column: pa.Array) -> bool:
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or column.null_count or not kind.list_size:
        return False
    number = pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)
    return bool(number and not column.flatten().null_count)


def _kept_vectors(column: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    matrix = column.flatten().to_numpy(zero_copy_only=True).reshape(len(column), column.type.list_size)
    values = pa.array(matrix[mask].reshape(-1), column.type.value_type)
    return pa.FixedSizeListArray.from_arrays(values, type=column.type)
