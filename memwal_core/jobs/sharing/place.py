"""Choose where a job does its work: in the process that planned it, or on executors. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field

from memwal_core.errors import InvalidRequestError
from memwal_core.settings import ExecutorSettings
from memwal_core.text import show_bytes, show_count


class Engine(StrEnum):
    """Where a job is asked to do its work."""

    AUTO = "auto"
    """On executors if there are any and the work is large enough."""
    LOCAL = "local"
    """In the process that plans it."""
    SPARK = "spark"
    """On executors, however little there is to do."""


def engine_field() -> Any:  # noqa: ANN401 - what pydantic's Field returns
    """Return the field ``engine`` of a request."""
    return Field(
        default=Engine.AUTO,
        title="Where",
        description="Where the work is done: on Spark's executors (spark), in the process that plans it (local), or "
        "wherever it ends sooner (auto).",
        json_schema_extra={"section": "Bounds"},
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What a job has to do, as far as it is known before it begins."""

    regions: int = 0
    size_bytes: int = 0
    objects: int = 0


@dataclass(frozen=True, slots=True)
class SizeBound:
    """Bytes from which some work is worth tasks.

    Attributes:
        setting: What says so.
    """

    size_bytes: int
    setting: str


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a job does its work.

    Attributes:
        on_executors: Whether executors do it; else the process that planned it does.
    """

    on_executors: bool
    reason: str
    work: Work = field(default_factory=Work, compare=False)

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{'on executors' if self.on_executors else 'in this process'}: {self.reason}"

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"engine": Engine.SPARK.value if self.on_executors else Engine.LOCAL.value, "reason": self.reason}


def choose_place(
    work: Work, engine: Engine, settings: ExecutorSettings, *, reachable: bool, bound: SizeBound | None = None
) -> Workplace:
    """Choose where some work is done.

    Args:
        work: How much there is to do.
        engine: What was asked for.
        settings: From which size tasks are worth starting.
        reachable: Whether there are executors.
        bound: Holds instead of ``executors.min_bytes``; one of 0 also for work of no size.
    """
    on_executors, reason = _chosen(work, engine, settings, reachable, bound)
    return Workplace(on_executors, reason, work)


def _chosen(
    work: Work, engine: Engine, settings: ExecutorSettings, reachable: bool, bound: SizeBound | None
) -> tuple[bool, str]:
    if engine is not Engine.AUTO:
        on_executors = engine is Engine.SPARK
        missing = ", but this process has none" if on_executors and not reachable else ""
        return on_executors, f"it was asked for{missing}"
    size = show_count(work.regions, "region") if work.regions else show_bytes(work.size_bytes)
    if not reachable:
        return False, f"{size}, and this process has no executors"
    if work.regions and work.regions >= settings.min_regions:
        return True, f"{size} are at least executors.min_regions, which is {settings.min_regions}"
    least = bound or SizeBound(settings.min_bytes, "executors.min_bytes")
    if work.size_bytes >= least.size_bytes and (work.size_bytes or bound is not None):
        return True, f"{size} are at least {least.setting}, which is {show_bytes(least.size_bytes)}"
    return False, f"{size} take less time than tasks take to begin"


def no_executors(job: str, table_uri: str) -> InvalidRequestError:
    """Return the error that says that a job was sent to executors from a process that has none."""
    return InvalidRequestError(
        "the job was asked to run on executors, and this process has none",
        remedy=f"submit jobs/{job}.py to Spark, or ask for the engine local or auto",
        table=table_uri,
    )


def place_facts(place: Workplace | None) -> dict[str, object]:
    """Return what reports and the ledger say of a place; nothing if none was chosen."""
    return {} if place is None else {"where": place.to_dict()}


def place_lines(place: Workplace | None) -> tuple[str, ...]:
    """Return what people are told of a place; nothing if none was chosen."""
    return () if place is None else (f"where: {place}",)


def work_at(place: Workplace | None) -> Work:
    """Return how much there is to do at a place; nothing if none was chosen."""
    return Work() if place is None else place.work
