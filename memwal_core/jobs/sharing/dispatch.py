"""Choose whether a scheduler's worker does a job itself, or hands it to Spark: one rule for all jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.place import Engine, Work
from memwal_core.settings import DispatchSettings
from memwal_core.text import show_bytes, show_count


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Who does a job.

    Attributes:
        to_spark: Whether it becomes a Spark application; else the worker that planned it does it.
    """

    to_spark: bool
    reason: str

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{'as a Spark application' if self.to_spark else 'in the worker'}: {self.reason}"


def dispatch(request: JobRequest, work: Work, settings: DispatchSettings) -> Dispatch:
    """Choose who does a job.

    ``engine=local`` keeps work from executors and does not make it smaller: above the bounds it is still an
    application, whose driver does it.

    Args:
        request: What the job is asked for.
        work: What it has to do, as its plan says.
        settings: What a worker does itself.
    """
    if request.info.needs_spark:
        return Dispatch(True, "the job reads with Spark")
    if getattr(request, "engine", Engine.AUTO) is Engine.SPARK:
        return Dispatch(True, "it was asked for")
    too_large = _too_large(work, settings)
    if too_large:
        return Dispatch(True, too_large)
    known = ", ".join(shown for shown in _shown(work).values() if shown)
    return Dispatch(False, f"{known or 'what there is to do'}, which takes less time than an application to start")


def dispatch_plan(reading: Work, settings: DispatchSettings) -> Dispatch | None:
    """Choose who plans a job; None: the worker that asks.

    Args:
        reading: What a plan of it reads, as far as that is found cheaply.
        settings: What a worker does itself.
    """
    too_large = _too_large(reading, settings)
    return Dispatch(True, f"it plans there, too, for {too_large}") if too_large else None


def _too_large(work: Work, settings: DispatchSettings) -> str:
    """Return which bound some work is above; empty if it is above none."""
    shown = _shown(work)
    bounds = (
        (work.size_bytes, settings.max_bytes, "bytes", show_bytes(settings.max_bytes)),
        (work.regions, settings.max_regions, "regions", str(settings.max_regions)),
        (work.objects, settings.max_objects, "objects", str(settings.max_objects)),
    )
    for value, bound, name, shown_bound in bounds:
        if value > bound:
            return f"{shown[name]} are more than dispatch.max_{name}, which is {shown_bound}"
    return ""


def _shown(work: Work) -> dict[str, str]:
    return {
        "bytes": show_bytes(work.size_bytes) if work.size_bytes else "",
        "regions": show_count(work.regions, "region") if work.regions else "",
        "objects": show_count(work.objects, "object") if work.objects else "",
    }
