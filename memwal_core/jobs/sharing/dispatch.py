"""Choose whether a scheduler's worker does a job itself, or hands it to Spark: one rule for all jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.place import Engine, Work
from memwal_core.settings import DispatchSettings
from memwal_core.text import show_bytes


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Who does a job.

    Attributes:
        to_spark: Whether it becomes a Spark application; else the worker that planned it does it.
        reason: Why, for people.
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
    bounds = (
        (work.size_bytes, settings.max_bytes, show_bytes(work.size_bytes), "bytes", show_bytes(settings.max_bytes)),
        (work.regions, settings.max_regions, f"{work.regions} regions", "regions", str(settings.max_regions)),
        (work.objects, settings.max_objects, f"{work.objects} objects", "objects", str(settings.max_objects)),
    )
    for value, bound, shown, name, shown_bound in bounds:
        if value > bound:
            return Dispatch(True, f"{shown} are more than dispatch.max_{name}, which is {shown_bound}")
    known = ", ".join(shown for value, _, shown, _, _ in bounds if value)
    return Dispatch(False, f"{known or 'what there is to do'}, which takes less time than an application to start")
