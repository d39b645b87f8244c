"""Streaming upserts into Lance tables through MemWAL: writing, reading, and the maintenance in between.

``open`` and ``create`` return a ``Table``: ``writer`` writes; ``to_arrow``, ``scan``, ``lookup`` and the searches
read; ``run`` runs a job; ``status``, ``health`` and ``doctor`` examine it. All errors are a ``MemwalError``;
``memwal_core.errors`` has their classes. What is named here is imported at its first use, so that processes that only
look at requests and settings start without Lance and Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memwal_core.errors import MemwalError
    from memwal_core.jobs.backup.request import BackupRequest
    from memwal_core.jobs.catchup.request import CatchupRequest
    from memwal_core.jobs.clone.request import CloneRequest
    from memwal_core.jobs.compact.request import CompactRequest
    from memwal_core.jobs.cycle.request import MaintainRequest
    from memwal_core.jobs.flush_idle.request import FlushRequest
    from memwal_core.jobs.gc.request import GcRequest
    from memwal_core.jobs.ingest.request import IngestRequest
    from memwal_core.jobs.merge.request import MergeRequest
    from memwal_core.jobs.quality.request import QualityRequest
    from memwal_core.jobs.relocate.request import RelocateRequest
    from memwal_core.jobs.repair.request import RepairRequest
    from memwal_core.jobs.snapshot.request import SnapshotRequest
    from memwal_core.jobs.thaw.run import Decision
    from memwal_core.jobs.verify.request import VerifyRequest
    from memwal_core.reader import Consistency
    from memwal_core.reader.scan.scan import ScanRequest
    from memwal_core.reader.text.search import TextQuery
    from memwal_core.reader.vector.search import VectorQuery
    from memwal_core.settings import Settings
    from memwal_core.table import Table

    create = Table.create
    open = Table.open
    __version__: str

__all__ = [
    "BackupRequest",
    "CatchupRequest",
    "CloneRequest",
    "CompactRequest",
    "Consistency",
    "Decision",
    "FlushRequest",
    "GcRequest",
    "IngestRequest",
    "MaintainRequest",
    "MemwalError",
    "MergeRequest",
    "QualityRequest",
    "RelocateRequest",
    "RepairRequest",
    "ScanRequest",
    "Settings",
    "SnapshotRequest",
    "Table",
    "TextQuery",
    "VectorQuery",
    "VerifyRequest",
    "__version__",
    "create",
    "open",
]

_HOMES = {
    "BackupRequest": "memwal_core.jobs.backup.request",
    "CatchupRequest": "memwal_core.jobs.catchup.request",
    "CloneRequest": "memwal_core.jobs.clone.request",
    "CompactRequest": "memwal_core.jobs.compact.request",
    "Consistency": "memwal_core.reader",
    "Decision": "memwal_core.jobs.thaw.run",
    "FlushRequest": "memwal_core.jobs.flush_idle.request",
    "GcRequest": "memwal_core.jobs.gc.request",
    "IngestRequest": "memwal_core.jobs.ingest.request",
    "MaintainRequest": "memwal_core.jobs.cycle.request",
    "MemwalError": "memwal_core.errors",
    "MergeRequest": "memwal_core.jobs.merge.request",
    "QualityRequest": "memwal_core.jobs.quality.request",
    "RelocateRequest": "memwal_core.jobs.relocate.request",
    "RepairRequest": "memwal_core.jobs.repair.request",
    "ScanRequest": "memwal_core.reader.scan.scan",
    "Settings": "memwal_core.settings",
    "SnapshotRequest": "memwal_core.jobs.snapshot.request",
    "Table": "memwal_core.table",
    "TextQuery": "memwal_core.reader.text.search",
    "VectorQuery": "memwal_core.reader.vector.search",
    "VerifyRequest": "memwal_core.jobs.verify.request",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name == "__version__":
        return import_module("importlib.metadata").version("memwal-core")  # Itself slower to import than this module.
    if name in ("create", "open"):
        return getattr(__getattr__("Table"), name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
