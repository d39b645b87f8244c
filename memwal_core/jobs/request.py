"""What a job is asked for: one model per job, from which its command, its form, its document and its call are made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError
from memwal_core.format.document import is_text
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.settings.similar import problem_of

REGIONS_ASSET = "memwal_regions"
"""Changed by a batch that was written into regions."""

BASE_TABLE_ASSET = "memwal_base_table"
"""Changed by a merge."""

INDEXES_ASSET = "memwal_indexes"
"""Changed by an index catch-up."""


Report_co = TypeVar("Report_co", covariant=True)


@dataclass(frozen=True, slots=True)
class JobInfo(Generic[Report_co]):
    """What is known of a job without importing its code; type checkers know the class of its reports, too.

    Attributes:
        name: Of the job, its lease, its history, its command and its DAG.
        summary: One line.
        implementation: ``module:class`` of its ``Job``.
        runbook: Where to go on when it needs a person.
        guide: Page for people in Markdown: what it does, when it is safe, what failures mean.
        exit_codes: What its exit codes mean beyond 0 and 2, for the help of its command.
        takes_lease: Whether a run holds a lease.
        dry_run_is_work: Whether a dry run reads so much that a scheduler gives it a task of its own.
        needs_spark: Whether a scheduler hands it to Spark, however little there is.
        started_by: Assets whose change starts a run.
        changes: Asset that a run changes; empty if no other job waits for one.
        may_need_approval: Whether the operator can demand that a person agrees first.
        acts_on_frozen: Whether it works on a frozen table, because people need it to find or mend the cause.
        takes_plain_tables: Whether it works on a table without MemWAL.
        by_hand: Whether it has no DAG, because what it may give up is for the operator to decide, not for everybody who
            may start a run.
        mends_damage: Whether it works on a table whose newest version cannot be read.
    """

    name: str
    summary: str
    implementation: str
    runbook: str
    guide: str
    exit_codes: str = (
        "3 nothing to do, 4 conflict or storage failure (try again), 5 it needs a person, 8 the table is frozen"
    )
    takes_lease: bool = True
    dry_run_is_work: bool = False
    needs_spark: bool = False
    started_by: tuple[str, ...] = ()
    changes: str = ""
    may_need_approval: bool = False
    acts_on_frozen: bool = False
    mends_damage: bool = False
    takes_plain_tables: bool = False
    by_hand: bool = False


class AskedOf(Protocol[Report_co]):
    """The request of a job whose runs end with such a report."""

    @property
    def info(self) -> JobInfo[Report_co]:
        """The job."""
        ...


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field appears on the command line, where its name alone would not do.

    Attributes:
        name: For example ``--region``; a second name after a slash switches a boolean off.
        metavar: What stands for the value in help texts.
        is_argument: A positional argument instead of an option.
    """

    name: str
    metavar: str = ""
    is_argument: bool = False


class Grant(StrEnum):
    """Marks a field whose value the operator has to grant before somebody else's run may use it.

    On a command line and in Python the values are addresses and files. In a run that is started from Airflow they are
    names, which the registry turns into them (``memwal_core.registry.admit``).
    """

    SOURCES = "sources"
    FORMAT = "format"
    READER_OPTIONS = "reader_options"
    SUITES = "suites"
    DOCS = "docs"


def _region(value: object) -> object:
    return parse_region_id(value) if isinstance(value, str) else value


_REGION_PATTERN = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

Region = Annotated[
    RegionId,
    BeforeValidator(_region),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _REGION_PATTERN}),
]
"""A region id; text in JSON."""

Regions = Annotated[
    tuple[Region, ...],
    Flag("--region", "UUID"),
    Field(
        title="Regions",
        description="Only these regions. Empty: all regions.",
        json_schema_extra={"section": "Bounds", "uniqueItems": True},
    ),
]

SuiteFiles = Annotated[
    tuple[Annotated[str, Field(pattern=r"\.(json|py)$")], ...], Flag("--suite", "FILE"), Grant.SUITES
]
"""Files with expectations, .json or .py. Python files are executed."""


class JobRequest(BaseModel):
    """What a job is asked for. Values only; who runs it, where, and under which lease is the runner's.

    Attributes:
        dry_run: Only plan: say what would be done, and change nothing.

    Raises:
        InvalidRequestError: A value is unknown, missing or out of bounds. Correct it; nothing was done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    info: ClassVar[JobInfo[Any]]

    dry_run: bool = Field(
        default=False, title="Dry run", description="Only plan: say what would be done, and change nothing."
    )

    if not TYPE_CHECKING:  # type checkers make the constructor from the fields

        def __init__(self, **values: Any) -> None:  # noqa: ANN401
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise _invalid(type(self), error) from error

    @model_validator(mode="after")
    def _has_texts(self) -> Self:
        """Refuse arguments that are not UTF-8, which Python takes for texts."""
        if not is_text(json.dumps(self.model_dump(), ensure_ascii=False, default=str)):
            raise ValueError("a text is not UTF-8")
        return self

    @property
    def key(self) -> JobKey:
        """What a run leases, and what its history is kept under."""
        return JobKey(self.info.name)

    def for_run(self, run_id: str) -> Self:  # noqa: ARG002 - requests that need it override this
        """Return the request as a scheduled run makes it.

        Args:
            run_id: The same whenever the run is repeated.
        """
        return self

    def planned_only(self) -> Self:
        """Return the request as a dry run."""
        return self.model_copy(update={"dry_run": True})

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from their defaults, as JSON."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _invalid(kind: type[JobRequest], error: ValidationError) -> InvalidRequestError:
    fields = sorted(kind.model_fields)
    problems = {
        ".".join(str(part) for part in each["loc"]) or "request": problem_of(each, fields) for each in error.errors()
    }
    return InvalidRequestError(
        f"the request for {kind.info.name} is not valid",
        remedy="correct the values that are named",
        problems=problems,
        fields=fields,
    )
