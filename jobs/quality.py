"""Check the quality of one table: ``spark-submit jobs/quality.py --uri s3://bucket/table --stage before``.

Before a merge, executors audit the flushed MemTables, and those that fail are held back; after it,
the base table is checked. Exit codes: 0 all checks passed, 2 bad input, 3 nothing to check, 4
storage failure (try again), 5 a check failed and somebody must look.
"""

from __future__ import annotations

import argparse
import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from pyspark.sql import SparkSession

from memwal_core.admin import TableAdmin
from memwal_core.cli.job import JobReport, add_job_options, run_job
from memwal_core.cli.quality import open_quality
from memwal_core.cli.telemetry import telemetry
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.recording import recorded
from memwal_core.quality import QualityPlan, QualityReport, QualityTable, Stage, quality_facts
from memwal_core.quality.run import QualityRequest, check_quality


class _Planned:
    """A dry run, as a report."""

    outcome = JobOutcome.PLANNED

    def __init__(self, plan: QualityPlan) -> None:
        self._plan = plan

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return self._plan.to_dict()


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    accepted = {JobOutcome.BLOCKED} if options.ok_when_failed else set[JobOutcome]()
    return run_job(options, lambda admin: _work(admin, options), accepted=accepted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quality.py", description="Check flushed MemTables and the base table.")
    parser.add_argument(
        "--stage", required=True, choices=[stage.value for stage in Stage], help="before or after a merge"
    )
    parser.add_argument("--suite", action="append", metavar="FILE", help="expectations for the rows, .json or .py")
    parser.add_argument("--since", type=int, metavar="N", help="after: recount everything merged after version N")
    parser.add_argument("--docs", default="", metavar="PLACE", help="directory or s3://bucket/prefix of Data Docs")
    parser.add_argument(
        "--ok-when-failed", action="store_true", help="exit with 0, not 5, if a check failed: the report tells"
    )
    parser.add_argument("--holder", help="who runs the job, for the ledger; it takes no lease")
    add_job_options(parser)
    return parser


def _work(admin: TableAdmin, options: argparse.Namespace) -> JobReport:
    quality, stage = open_quality(admin), Stage(options.stage)
    if options.dry_run:
        return _Planned(quality.plan(stage, since=options.since))
    # Each stage has a history of its own: a stage that passes says nothing about failures of the other.
    key, holder = JobKey("quality", stage.value), options.holder or admin.insight.new_holder()
    return recorded(admin.insight, key, holder, lambda: _check(quality, stage, options), facts=quality_facts)


def _check(quality: QualityTable, stage: Stage, options: argparse.Namespace) -> QualityReport:
    plan = quality.plan(stage, since=options.since)
    spark = SparkSession.builder.appName(f"memwal quality {options.uri}").getOrCreate()
    try:
        return check_quality(quality, plan, spark, QualityRequest(tuple(options.suite or ()), options.docs))
    finally:
        spark.stop()


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
