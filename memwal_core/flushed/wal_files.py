"""How a flushed MemTable names the WAL entries that are its files where the store has no links."""

from __future__ import annotations

from collections.abc import Iterable

import lance
import xxhash

WAL_BASE_ID = 1
WAL_BASE_NAME = "wal"


def wal_base(address: str) -> lance.lance.DatasetBasePath:
    """Return the base path of a region's WAL."""
    return lance.lance.DatasetBasePath(address, name=WAL_BASE_NAME, is_dataset_root=False, id=WAL_BASE_ID)


def wal_digest(attempts: Iterable[str]) -> int:
    """Return the digest of WAL entries by their marks, in the order of the fragments.

    Each entry has a mark that no other has, and a checksum of its own bytes. So the digest tells the entries that were
    flushed from all others, those of a copy of the table included, and costs no read when it is made.
    """
    return xxhash.xxh3_64_intdigest("\n".join(attempts).encode())
