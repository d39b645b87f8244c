"""What the threads of one region writer share, behind one lock."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pyarrow as pa

from memwal_core.memtable import MemTableQueue
from memwal_core.region import RegionManifest
from memwal_core.wal import EntryShape
from memwal_core.writer.claim.ownership import Ownership
from memwal_core.writer.stats import WriterMeters


@dataclass(eq=False)
class RegionState:
    """The mutable state of a region writer. Hold ``lock`` to read or change more than one field.

    No request to the store is made under the lock, so reading never waits for storage.

    Attributes:
        ownership: The claim; has a lock of its own.
        manifest: The newest manifest version that this writer wrote or adopted.
        pending_since: Monotonic time of the oldest put that is in no WAL entry; None if there is none.
        is_closing: Whether no more rows are taken.
        changed: Notified when the queue gets room or the writer stops.
    """

    ownership: Ownership
    manifest: RegionManifest
    queue: MemTableQueue
    shape: EntryShape
    meters: WriterMeters
    pending_since: float | None = None
    is_closing: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    changed: threading.Condition = field(init=False)

    @property
    def schema(self) -> pa.Schema:
        """Schema of new MemTables."""
        return self.shape.schema

    def __post_init__(self) -> None:
        self.changed = threading.Condition(self.lock)
