"""When the active MemTable is full, decided from values alone."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from memwal_core.memtable import MemTable
from memwal_core.settings import WriterSettings


class RotationReason(StrEnum):
    """Why a MemTable was frozen; a label of the rotation counter."""

    BYTES = "bytes"
    ROWS = "rows"
    AGE = "age"
    MEMORY = "memory"
    REQUEST = "request"
    SCHEMA = "schema"


def reason_for_incoming(
    memtable: MemTable, rows: int, size_bytes: int, now: datetime, settings: WriterSettings
) -> RotationReason | None:
    """Return why a MemTable must be frozen before it takes a batch; None if it may take it.

    Reaching a limit exactly is allowed. An empty MemTable takes a batch larger than the limits whole.
    """
    if not memtable.num_rows:
        return None
    if memtable.size_bytes + size_bytes > settings.max_memtable_bytes:
        return RotationReason.BYTES
    if memtable.num_rows + rows > settings.max_memtable_rows:
        return RotationReason.ROWS
    return reason_without_incoming(memtable, now, settings)


def reason_without_incoming(memtable: MemTable, now: datetime, settings: WriterSettings) -> RotationReason | None:
    """Return why a MemTable must be frozen although no batch comes; None if it may stay."""
    if not memtable.num_rows:
        return None
    if memtable.size_bytes > settings.max_memtable_bytes:
        return RotationReason.BYTES
    if memtable.num_rows > settings.max_memtable_rows:
        return RotationReason.ROWS
    if seconds_until_too_old(memtable, now, settings) <= 0:
        return RotationReason.AGE
    return None


def seconds_until_too_old(memtable: MemTable, now: datetime, settings: WriterSettings) -> float:
    """Return how long a MemTable may stay; not positive if it should be frozen already.

    One from the future is frozen: the clock was set back, and by it the MemTable would stay as long again.
    """
    age_s = (now - memtable.created).total_seconds()
    return settings.max_memtable_age_s - age_s if age_s >= 0 else 0.0
