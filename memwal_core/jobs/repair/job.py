"""The repair as a job."""

from __future__ import annotations

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Job
from memwal_core.jobs.repair.report import RepairReport
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.repair.run import repair
from memwal_core.settings import Settings


class RepairJob(Job[RepairRequest, RepairReport]):
    """A damaged table becomes whole again, with a copy of everything that is touched."""

    def check(self, settings: Settings, request: RepairRequest) -> None:  # noqa: ARG002 - others look at them
        """Refuse to give up rows of a region that is not looked at.

        Raises:
            InvalidRequestError: A loss is accepted of a region that ``regions`` leaves out.
        """
        left_out = request.losses.regions - set(request.regions) if request.regions else frozenset()
        if left_out:
            raise InvalidRequestError(
                "a loss is accepted of regions that are not looked at",
                remedy="name them with --region, too, or leave --region out",
                regions=sorted(map(str, left_out)),
            )

    def run(self, context: JobContext, request: RepairRequest) -> RepairReport:
        """Repair, or with ``dry_run`` only say what would be done."""
        return repair(context, request)
