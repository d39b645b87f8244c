"""Streaming upserts into Lance tables through MemWAL: writing, reading, and the maintenance in between.

``open`` and ``create`` return a ``Table``. What they need is imported at the first use, so that processes that
only look at requests and settings start without Lance and Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memwal_core.jobs.catchup.request import CatchupRequest
    from memwal_core.jobs.compact.request import CompactRequest
    from memwal_core.jobs.cycle.request import MaintainRequest
    from memwal_core.jobs.gc.request import GcRequest
    from memwal_core.jobs.ingest.request import IngestRequest
    from memwal_core.jobs.merge.request import MergeRequest
    from memwal_core.jobs.quality.request import QualityRequest
    from memwal_core.jobs.snapshot.request import SnapshotRequest
    from memwal_core.table import Table

    create = Table.create
    open = Table.open

__all__ = [
    "CatchupRequest",
    "CompactRequest",
    "GcRequest",
    "IngestRequest",
    "MaintainRequest",
    "MergeRequest",
    "QualityRequest",
    "SnapshotRequest",
    "Table",
    "create",
    "open",
]

_HOMES = {
    "CatchupRequest": "memwal_core.jobs.catchup.request",
    "CompactRequest": "memwal_core.jobs.compact.request",
    "GcRequest": "memwal_core.jobs.gc.request",
    "IngestRequest": "memwal_core.jobs.ingest.request",
    "MaintainRequest": "memwal_core.jobs.cycle.request",
    "MergeRequest": "memwal_core.jobs.merge.request",
    "QualityRequest": "memwal_core.jobs.quality.request",
    "SnapshotRequest": "memwal_core.jobs.snapshot.request",
    "Table": "memwal_core.table",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in ("create", "open"):
        return getattr(__getattr__("Table"), name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
