"""What an ingestion is asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import Field

from memwal_core.jobs.request import REGIONS_ASSET, Flag, Grant, JobInfo, JobRequest, SuiteFiles
from memwal_core.jobs.sharing.place import Engine, engine_field
from memwal_core.settings.bounds import Count
from memwal_core.settings.writer import Takeover

if TYPE_CHECKING:
    from memwal_core.ingest.report import IngestReport

_GUIDE = """
### Write a batch of rows into the regions of one table

Rows from files, tables or another Lance table become rows of regions: checked, divided by the region spec, written by
one task per region, flushed. The next merge brings them into the base table.

| Task | What it does |
|---|---|
| `plan` | looks whether the batch is written already, and says what is left. Changes nothing |
| `work` | the Spark job; executors check all rows first, and one bad row refuses the batch |
| `verify` | reads the record of the batch anew: rows and regions |
| `merge_parameters`, `start_merge` | only if **Merge afterwards** is on: start `memwal_merge` for the table |

**When is it safe?** Always. A batch id is written once: running it again, clearing tasks and two runs at once change
nothing, also if later batches have changed the same keys; `work` and `verify` are then *skipped*. A run that died in
the middle goes on with the regions that are missing. Give other rows another batch id.

**What do failures mean?**

| Exit code of the job | Meaning | What happens |
|---|---|---|
| 2 | rows or parameters do not fit; the log shows sample rows, and nothing was written | fails at once; correct it |
| 4 | another live writer has a region, or storage or executors failed | tried again, with growing waits |
| 5 | a writer of others took a region over, or a region is damaged | fails at once; see `docs/runbooks` |

**Take over** stops other writers of the regions that the batch needs; what they have acknowledged stays.

**It needs** the Spark connection `spark_default`, and sources that the executors reach.
"""

STREAM = "ingest"
"""Stream of batches that do not name one."""


class SourceFormat(StrEnum):
    """What sources are."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    LANCE = "lance"
    TABLE = "table"


class IngestRequest(JobRequest):
    """Write rows into the regions of a table, once per batch id. A batch with a row that does not fit is refused whole.

    Attributes:
        sources: Files, directories, addresses, or names of tables.
        format: What they are; told from the suffix if None.
        batch: Batch id, which is written once; empty: it stands for local files as they are now.
        stream: Whose batch it is: the same id in another stream is another batch.
        order_by: Column that tells which row of a key is the newest; empty: the last one in the source.
        delete_column: Boolean column that is true on rows to delete; empty: all rows are written.
        suites: Files with expectations for the rows, .json or .py, where the Spark driver runs.
        takeover: What to do about a region whose writer seems alive.
        spec: Region spec to follow, if there are several.
        options: Of Spark's reader.
        engine: Where rows are checked and written. ``auto``: in this process if they are few.
    """

    info: ClassVar[JobInfo[IngestReport]] = JobInfo(
        name="ingest",
        summary="Write a batch of rows into the regions of a table, once per batch id.",
        implementation="memwal_core.spark.ingest.job:IngestJob",
        runbook="docs/runbooks/epoch-changes.md",
        guide=_GUIDE,
        exit_codes="3 the batch was written before, 4 another live writer, or storage or Spark failed (try again), "
        "5 a region needs a person, 8 the table is frozen",
        takes_lease=False,
        dry_run_is_work=True,
        needs_spark=True,
        changes=REGIONS_ASSET,
    )

    sources: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], Flag("sources", "SOURCE", is_argument=True), Grant.SOURCES
    ] = Field(
        min_length=1,
        title="Sources",
        description="Files, directories, addresses, or names of tables. In Airflow: a source of the registry, "
        "perhaps with a path in it, as in landing/2026/11/*.parquet.",
        json_schema_extra={"uniqueItems": True},
    )
    format: Annotated[SourceFormat | None, Grant.FORMAT] = Field(
        default=None, title="Format", description="What the sources are. Empty: told from the suffix."
    )
    batch: str = Field(
        default="",
        title="Batch",
        description="Id of the batch, which is written once. Empty: it stands for the local files as they are now or, "
        "in a scheduled run, for its logical date.",
        json_schema_extra={"section": "Batch"},
    )
    stream: str = Field(
        default=STREAM,
        min_length=1,
        title="Stream",
        description="Whose batch it is: the same id in another stream is another batch.",
        json_schema_extra={"section": "Batch"},
    )
    order_by: str = Field(
        default="",
        title="Order by",
        description="Column that tells which row of a key is the newest. Empty: the last one in the source.",
        json_schema_extra={"section": "Rows"},
    )
    delete_column: str = Field(
        default="",
        title="Delete column",
        description="Boolean column that is true on rows to delete. Empty: all rows are written.",
        json_schema_extra={"section": "Rows"},
    )
    suites: SuiteFiles = Field(
        default=(),
        title="Suites",
        description="Files with expectations for the rows, .json or .py, where the Spark driver runs. Python files are "
        "executed.",
        json_schema_extra={"section": "Rows", "uniqueItems": True},
    )
    takeover: Takeover = Field(
        default=Takeover.FAIL,
        title="Take over",
        description="What to do about a region whose writer seems alive: fail and try again, or stop that writer.",
        json_schema_extra={"section": "Regions"},
    )
    spec: Count | None = Field(
        default=None,
        ge=1,
        title="Region spec",
        description="Region spec to follow, if there are several.",
        json_schema_extra={"section": "Regions"},
    )
    options: Annotated[dict[str, str], Flag("--option", "KEY=VALUE"), Grant.READER_OPTIONS] = Field(
        default_factory=dict,
        title="Reader options",
        description="Options of Spark's reader.",
        json_schema_extra={"section": "Rows"},
    )
    engine: Engine = engine_field()

    def for_run(self, run_id: str) -> Self:
        """Name the batch after the run, unless it has a name."""
        return self if self.batch else self.model_copy(update={"batch": run_id})
