"""How large an object may be, by its kind; what is larger is refused before its content is fetched.

Each bound is far above what this package writes: it only keeps bytes that somebody else stored from filling memory.
"""

from __future__ import annotations

from memwal_core.errors import CorruptionError

_KIB, _MIB = 1024, 1024 * 1024

MAX_OBJECT_BYTES = 2048 * _MIB
"""Any object that is read whole: WAL entries, and data files when damage is looked for."""
MAX_ENTRY_ROWS_BYTES = MAX_OBJECT_BYTES // 2
"""Arrow bytes of the rows of one WAL entry; the rest is room for what its file adds, so that it can be read again."""
MAX_HINT_BYTES = 4 * _KIB
"""A version hint: one number."""
MAX_REGISTER_BYTES = 256 * _MIB
"""One version of a register: region manifest, lease, ledger, maintenance record, ingest floor."""
MAX_NOTE_BYTES = 16 * _MIB
"""A document of one fact: quarantine, released writer, results of checks, records and reports of an ingested batch."""
MAX_SNAPSHOT_BYTES = 1024 * _MIB
"""A region snapshot."""
MAX_TABLE_MANIFEST_BYTES = 1024 * _MIB
"""A table manifest."""


def require_size(path: str, store: str, size_bytes: int, max_bytes: int) -> None:
    """Refuse an object that is larger than it may be.

    Raises:
        CorruptionError: It is.
    """
    if size_bytes > max_bytes:
        raise CorruptionError(
            "the object is larger than one of its kind may be, and was not fetched",
            remedy="find out which program wrote it; `memwal doctor` says what else is wrong",
            path=path,
            store=store,
            size_bytes=size_bytes,
            max_bytes=max_bytes,
        )
