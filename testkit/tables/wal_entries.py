"""The bytes of WAL entries without a WAL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from memwal_core.wal import LanceCodec, WalCodec

LANCE_CODEC = LanceCodec({})
"""Reads any entry; those that it writes name no field ids."""


def written_entry(
    path: Path, codec: WalCodec, rows: pa.Table, metadata: Mapping[str, str], storage_version: str = "2.0"
) -> bytes:
    """Write an entry to a file, whether its codec makes it in memory or not, and return its bytes.

    Args:
        path: Replaced if it exists.
        codec: What encodes it.
        rows: Its rows.
        metadata: See ``WalCodec.encode``.
        storage_version: Version of the Lance format.
    """
    path.unlink(missing_ok=True)
    content = codec.encode(rows, metadata, storage_version, lambda: path)
    if not isinstance(content, Path):
        path.write_bytes(b"".join(content))
    return path.read_bytes()
