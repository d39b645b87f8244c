"""Write a batch into regions: ``spark-submit jobs/ingest.py --uri s3://bucket/table --source day.parquet --batch day``.

Executors check all rows, then each region is written by one task; the driver sees counts only. The same batch id
is written once, whatever fails on the way and however often it is run. Exit codes: 0 done, 2 bad input or bad
rows (nothing was written), 3 the batch was written before, 4 another live writer, or storage or executors failed
(try again), 5 a region needs somebody to look at it.
"""

from __future__ import annotations

import argparse
import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import TableAdmin
from memwal_core.cli.ingest import STREAM, IngestOptions, recorded_ingest
from memwal_core.cli.job import add_job_options, run_job
from memwal_core.cli.options import parse_storage_options
from memwal_core.cli.telemetry import telemetry
from memwal_core.ingest import IngestReport
from memwal_core.spark.sources import Source, SourceFormat
from memwal_core.writer import Takeover


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_job(options, lambda admin: _work(admin, options))


def _work(admin: TableAdmin, options: argparse.Namespace) -> IngestReport:
    source = Source(
        options.source,
        SourceFormat(options.format) if options.format else None,
        parse_storage_options(options.option),
        admin.table.storage_options,
    )
    asked = IngestOptions(
        source,
        options.batch,
        options.stream,
        Takeover(options.takeover),
        options.order_by,
        options.delete_column,
        tuple(options.suite or ()),
        options.spec,
        options.dry_run,
    )
    return recorded_ingest(admin, asked, options.holder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ingest.py", description="Write a batch of rows into regions, once.")
    parser.add_argument("--source", nargs="+", required=True, metavar="PLACE", help="files, addresses, tables")
    parser.add_argument(
        "--format", choices=[form.value for form in SourceFormat], help="told from the suffix if absent"
    )
    parser.add_argument("--batch", default="", help="batch id; stands for local files as they are if absent")
    parser.add_argument("--stream", default=STREAM, help="whose batch it is")
    parser.add_argument("--order-by", default="", metavar="COLUMN", help="tells which row of a key is the newest")
    parser.add_argument("--delete-column", default="", metavar="COLUMN", help="boolean, true on rows to delete")
    parser.add_argument(
        "--takeover",
        choices=[each.value for each in Takeover],
        default=Takeover.FAIL.value,
        help="what to do about a region whose writer seems alive",
    )
    parser.add_argument("--suite", action="append", metavar="FILE", help="expectations for the rows, .json or .py")
    parser.add_argument("--spec", type=int, metavar="ID", help="region spec to follow, if there are several")
    parser.add_argument("--option", action="append", metavar="KEY=VALUE", help="of Spark's reader")
    parser.add_argument("--holder", help="who runs the job, for the ledger; it takes no lease")
    add_job_options(parser)
    return parser


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
