"""Check the quality of one table: ``spark-submit jobs/quality.py --uri s3://bucket/table --stage before``.

Before a merge, executors audit the flushed MemTables, and those that fail are held back; after it,
the base table is checked. Exit codes: 0 all checks passed, 2 bad input, 3 nothing to check, 4
storage failure (try again), 5 a check failed and somebody must look.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from pyspark.sql import SparkSession

from memwal_core.cli.options import open_admin
from memwal_core.cli.quality import open_quality
from memwal_core.errors import MemwalError
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.quality import QualityTable, Stage
from memwal_core.quality.run import QualityRequest, check_quality


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    options = _parser().parse_args(arguments)
    try:
        quality = open_quality(open_admin(options.uri, options.storage_option))
        outcome, document = _check(quality, options)
    except MemwalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    _deliver(document, options.json)
    if options.ok_when_nothing and outcome is JobOutcome.NOTHING_TO_DO:
        return 0
    if options.ok_when_failed and outcome is JobOutcome.BLOCKED:
        return 0
    return outcome.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quality.py", description="Check flushed MemTables and the base table.")
    parser.add_argument("--uri", required=True, help="path or address of the table")
    parser.add_argument(
        "--stage", required=True, choices=[stage.value for stage in Stage], help="before or after a merge"
    )
    parser.add_argument("--suite", action="append", metavar="FILE", help="expectations for the rows, .json or .py")
    parser.add_argument("--since", type=int, metavar="N", help="after: recount everything merged after version N")
    parser.add_argument("--docs", default="", metavar="PLACE", help="directory or s3://bucket/prefix of Data Docs")
    parser.add_argument("--dry-run", action="store_true", help="only plan")
    parser.add_argument("--ok-when-nothing", action="store_true", help="exit with 0, not 3, if there is nothing to do")
    parser.add_argument(
        "--ok-when-failed", action="store_true", help="exit with 0, not 5, if a check failed: the report tells"
    )
    parser.add_argument("--json", metavar="FILE", help="write the report to this file, or - for stdout")
    parser.add_argument("--storage-option", action="append", metavar="KEY=VALUE", help="for the object store")
    return parser


def _check(quality: QualityTable, options: argparse.Namespace) -> tuple[JobOutcome, dict[str, object]]:
    plan = quality.plan(Stage(options.stage), since=options.since)
    if options.dry_run:
        return JobOutcome.PLANNED, plan.to_dict()
    spark = SparkSession.builder.appName(f"memwal quality {options.uri}").getOrCreate()
    try:
        report = check_quality(quality, plan, spark, QualityRequest(tuple(options.suite or ()), options.docs))
    finally:
        spark.stop()
    return report.outcome, report.to_dict()


def _deliver(document: dict[str, object], target: str | None) -> None:
    text = json.dumps(document, indent=2)
    if target == "-":
        print(text)
    elif target:
        Path(target).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
