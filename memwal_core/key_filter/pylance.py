"""pylance's ``bloom_filter.bin``: 1,024 blocks, no header, for four key types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.key_filter.blocks import filled_blocks
from memwal_core.key_filter.messages import key_hashes

PYLANCE_FILTER_NAME = "bloom_filter.bin"
_BLOCKS = 1024
_RIGHT_FOR = (pa.types.is_int32, pa.types.is_int64, pa.types.is_string, pa.types.is_binary)


def pylance_filter(
    keys: pa.Table, columns: Sequence[str], hashes: npt.NDArray[np.uint64] | None = None
) -> bytes | None:
    """Return the bytes that pylance's own flush writes for these keys.

    Args:
        keys: At least the key columns, no NULLs.
        columns: The key columns in key order.
        hashes: ``hashes_of`` the keys, if known; of use where no key column is a 32-bit integer.

    Returns:
        32 KiB; None for key types that pylance hashes to one value, where a filter would hide keys.
    """
    types = [keys.schema.field(name).type for name in columns]
    if not all(any(is_kind(data_type) for is_kind in _RIGHT_FOR) for data_type in types):
        return None
    if hashes is None or any(pa.types.is_int32(data_type) for data_type in types):
        hashes = key_hashes(keys, columns, stored_width=True)
    blocks = filled_blocks(hashes, _BLOCKS)
    return blocks.astype("<u4").tobytes()
