"""All jobs: the one place where a new one is registered."""

from __future__ import annotations

from collections.abc import Mapping

from memwal_core.errors import InvalidRequestError
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
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest

REQUESTS: tuple[type[JobRequest], ...] = (
    IngestRequest,
    FlushRequest,
    MergeRequest,
    CatchupRequest,
    CompactRequest,
    SnapshotRequest,
    GcRequest,
    VerifyRequest,
    QualityRequest,
    MaintainRequest,
    RepairRequest,
    RelocateRequest,
    BackupRequest,
    CloneRequest,
)


_DECISIONS = ("freeze", "thaw")
"""Of people, which are recorded as runs are."""


def request_type(job: str) -> type[JobRequest]:
    """Return the model of a job's request.

    Raises:
        InvalidRequestError: There is no such job.
    """
    for each in REQUESTS:
        if each.info.name == job:
            return each
    raise InvalidRequestError(
        "there is no such job", remedy="name a known one", job=job, known=[each.info.name for each in REQUESTS]
    )


def require_recorded(job: str) -> None:
    """Refuse a name under which no run is ever recorded (``InvalidRequestError``)."""
    if job not in _DECISIONS:
        request_type(job)


def parse_request(job: str, values: Mapping[str, object]) -> JobRequest:
    """Make a request from JSON values.

    Raises:
        InvalidRequestError: There is no such job, or a value does not fit.
    """
    return request_type(job).model_validate(dict(values))
