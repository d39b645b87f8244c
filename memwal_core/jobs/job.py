"""A job: what the runner calls, and how an orchestrator divides and verifies its work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from memwal_core.coordination.ledger import RunOutcome
from memwal_core.errors import ConflictError, CorruptionError, MemwalError
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.dispatch import dispatch_plan
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.view import ReportView
from memwal_core.metrics import Instruments
from memwal_core.settings import Settings


class JobReport(Protocol):
    """What a run says about itself."""

    @property
    def table_uri(self) -> str:
        """The table."""
        ...

    @property
    def outcome(self) -> JobOutcome:
        """How it ended."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took."""
        ...

    def why(self) -> str:
        """Why it did or did not act, one sentence."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What the ledger remembers, JSON-able; ``version`` is the newest table version that was seen."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Everything, JSON-able."""
        ...

    def view(self) -> ReportView:
        """What people are shown."""
        ...


RequestT = TypeVar("RequestT", bound=JobRequest)
ReportT = TypeVar("ReportT", bound=JobReport)


@dataclass(frozen=True, slots=True)
class Piece:
    """Work for one task of an orchestrator.

    Attributes:
        promise: What ``Job.verify`` finds true afterwards, JSON-able.
    """

    label: str
    request: JobRequest
    promise: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Division:
    """A planned job, divided.

    Attributes:
        pieces: One after another or side by side; empty if nothing is due.
        blocked: What only a person can resolve, although there may be pieces beside it.
    """

    report: JobReport
    pieces: tuple[Piece, ...]
    blocked: MemwalError | None = None


@dataclass(frozen=True, slots=True)
class Proving:
    """The part of a verification that another job can do, before it: what that is asked for, and how much it reads.

    The verification finds in the ledger what the run of the same holder has found.
    """

    request: JobRequest
    work: Work


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found right after a job.

    Attributes:
        facts: For the event of the asset that the job changes, JSON-able.
    """

    summary: str
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


class Job(ABC, Generic[RequestT, ReportT]):
    """One kind of work on a table. Holds no state."""

    def check(self, settings: Settings, request: RequestT) -> None:
        """Refuse what must not even begin.

        Raises:
            InvalidRequestError: Settings and request contradict a rule.
        """

    def at_rest(self, context: JobContext, request: RequestT) -> ReportT | None:  # noqa: ARG002 - for others
        """Return the report of a run that is known to have nothing to do, at the cost of a few requests.

        Such a run writes nothing, not even into the ledger. None if it must look; never raises.
        """
        return None

    @abstractmethod
    def run(self, context: JobContext, request: RequestT) -> ReportT:
        """Do the work, or with ``dry_run`` only plan it."""

    def count(self, instruments: Instruments, report: ReportT) -> None:
        """Count what a run did; that it ran, and for how long, is counted for every job."""

    def recorded_as(self, report: ReportT) -> RunOutcome:
        """Return how the ledger remembers that a run ended."""
        # A plan changed nothing, so for the past of the job there was nothing to do.
        planned = report.outcome is JobOutcome.PLANNED
        return RunOutcome.NOTHING_TO_DO if planned else RunOutcome(report.outcome.value)

    def knows_the_end(self, report: ReportT) -> bool:  # noqa: ARG002 - for others
        """Tell whether a run has read the table as it left it."""
        return False

    def divide(self, context: JobContext, request: RequestT) -> Division:
        """Plan the work of an orchestrator's run. Changes nothing.

        Raises:
            InvalidRequestError: The request does not fit the table.
        """
        report = self.run(context, request.planned_only())
        due = report.outcome is JobOutcome.PLANNED
        return Division(report, (Piece(context.opened.uri, request),) if due else ())

    def size(self, report: ReportT) -> Work:  # noqa: ARG002 - of jobs that only people start, none is asked
        """Return how much a run has to do, as its plan says; decides whether a scheduler hands it to Spark."""
        return Work()

    def planning(self, context: JobContext, request: RequestT) -> Work:  # noqa: ARG002 - for others
        """Return how much a plan reads, where a worker may not manage it; found by listings alone."""
        return Work()

    def proving(self, context: JobContext, pieces: Sequence[Piece]) -> Proving | None:  # noqa: ARG002 - for others
        """Return the part of ``verify`` that grows with the table; None if there is none."""
        return None

    def verify(self, context: JobContext, pieces: Sequence[Piece], results: Sequence[Mapping[str, object]]) -> Proof:
        """Read the table anew after all pieces, and find what they promised.

        Args:
            context: The table.
            pieces: All of one table.
            results: Facts of the runs that changed something.

        Raises:
            CorruptionError: A promise does not hold, or something needs a person. Start no further job.
        """
        newest = max((version for each in results if isinstance(version := each.get("version"), int)), default=0)
        due = 0
        for piece in pieces[:1]:
            reading = self.planning(context, piece.request)  # type: ignore[arg-type]
            if dispatch_plan(reading, context.settings.dispatch) is not None:
                return Proof("the next run says what is due again", {"version": newest})
            division = self.divide(context, piece.request)  # type: ignore[arg-type]
            raise_if_blocked(division)
            due = len(division.pieces)
        return Proof(f"{due} due again" if due else "nothing is due", {"version": newest})

    def failure(self, request: RequestT, report: ReportT) -> MemwalError | None:
        """Return the error that a report amounts to for a scheduler; None if the job did what there was to do."""
        if report.outcome is JobOutcome.CONFLICT:
            return ConflictError(
                f"{request.info.name} ended with a conflict",
                remedy="let it try again; what was done stands",
                table=report.table_uri,
                reason=report.why(),
            )
        if report.outcome is JobOutcome.BLOCKED:
            return CorruptionError(
                f"{request.info.name} needs a person",
                remedy=f"follow {request.info.runbook}",
                table=report.table_uri,
                reason=report.why(),
            )
        return None


def raise_if_blocked(division: Division) -> None:
    """Raise what blocks a division that has no other work.

    Raises:
        CorruptionError: A person must act first.
    """
    if division.blocked is not None and not division.pieces:
        raise division.blocked
