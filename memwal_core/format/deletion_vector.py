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

from memwal_core.format.malformed import MalformedError

FILE_TYPE: Final = "bitmap"
SUFFIX = "bin"

_COOKIE = 12346  # no run containers
_COOKIE_WITH_RUNS = 12347
_HEAD = struct.Struct("<II")
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


def count_deleted(data: bytes) -> int:
    """Return how many rows a deletion vector's file deletes.

    Raises:
        MalformedError: Its length, or its head, is not that of a bitmap.
    """
    cookie, chunks = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        return _count_with_runs(data, (cookie >> 16) + 1)
    if cookie != _COOKIE:
        raise MalformedError(f"{len(data)} bytes are not a bitmap of deleted rows")
    described = _HEAD.size + 4 * chunks
    if len(data) < described + 4 * chunks:
        raise MalformedError(f"{len(data)} bytes are too short for a bitmap of {chunks} parts")
    counts = np.frombuffer(data, "<u2", 2 * chunks, _HEAD.size)[1::2].astype(np.int64) + 1
    sizes = np.where(counts <= _ARRAY_LIMIT, 2 * counts, _CHUNK_ROWS // 8)
    expected = described + 4 * chunks + int(sizes.sum())
    if len(data) != expected:
        raise MalformedError(f"it has {len(data)} bytes where its head asks for {expected}")
    start = described + 4 * chunks
    for count, size in zip(counts.tolist(), sizes.tolist(), strict=True):
        if count <= _ARRAY_LIMIT and (np.diff(np.frombuffer(data, "<u2", count, start).astype(np.int64)) <= 0).any():
            raise MalformedError("its row numbers do not ascend")
        start += size
    return int(counts.sum())


def _count_with_runs(data: bytes, chunks: int) -> int:
    start = 4 + (chunks + 7) // 8
    if len(data) < start + 4 * chunks:
        raise MalformedError(f"{len(data)} bytes are too short for a bitmap of {chunks} parts")
    counts = np.frombuffer(data, "<u2", 2 * chunks, start)[1::2].astype(np.int64) + 1
    return int(counts.sum())


def _container(flags: npt.NDArray[np.bool_], count: int) -> bytes:
    if count <= _ARRAY_LIMIT:
        return np.flatnonzero(flags).astype("<u2").tobytes()
    packed = np.packbits(flags, bitorder="little")
    return packed.tobytes().ljust(_CHUNK_ROWS // 8, b"\0")
