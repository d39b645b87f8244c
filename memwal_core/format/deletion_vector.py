"""The bytes of a deletion vector: which rows of a fragment are deleted.

Lance stores one as a roaring bitmap in its portable serialisation. pylance writes such files only
from an SQL predicate, at several microseconds per row; row numbers that are known already are
packed here at memory speed. Numbers are little-endian.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

FILE_TYPE: Final = "bitmap"
SUFFIX = "bin"

_COOKIE = 12346  # no run containers
_ARRAY_LIMIT = 4096
_CHUNK_ROWS = 1 << 16


def encode_deletion_vector(deleted: npt.NDArray[np.bool_]) -> bytes:
    """Return the file that deletes some rows of a fragment.

    Args:
        deleted: One flag per physical row; at most 2^32 rows.
    """
    keys: list[int] = []
    counts: list[int] = []
    containers: list[bytes] = []
    for start in range(0, len(deleted), _CHUNK_ROWS):
        flags = deleted[start : start + _CHUNK_ROWS]
        count = int(np.count_nonzero(flags))
        if count:
            keys.append(start // _CHUNK_ROWS)
            counts.append(count)
            containers.append(_container(flags, count))
    descriptions = np.array([keys, np.array(counts) - 1], dtype="<u2").T.tobytes() if keys else b""
    header = struct.pack("<II", _COOKIE, len(keys)) + descriptions
    sizes = [len(container) for container in containers]
    offsets = np.cumsum([len(header) + 4 * len(keys), *sizes])[: len(keys)].astype("<u4").tobytes()
    return b"".join([header, offsets, *containers])


def _container(flags: npt.NDArray[np.bool_], count: int) -> bytes:
    if count <= _ARRAY_LIMIT:
        return np.flatnonzero(flags).astype("<u2").tobytes()
    packed = np.packbits(flags, bitorder="little")
    return packed.tobytes().ljust(_CHUNK_ROWS // 8, b"\0")
