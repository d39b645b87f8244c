"""Collect the garbage of one table: ``spark-submit jobs/gc.py --uri s3://bucket/table``.

The work is requests to the object store, so it runs in this process alone. Exit codes: 0 done, 2
bad input or unsafe retention, 3 nothing to do, 4 something failed or another collection is under
way (try again), 5 something is frozen and needs somebody to look at it, or the lease was lost.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import GcRequest, TableAdmin
from memwal_core.cli.job import JobReport, add_holder_option, add_job_options, run_job
from memwal_core.cli.telemetry import telemetry
from memwal_core.ids import parse_region_id
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.recording import recorded_step


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_job(options, lambda admin: _work(admin, options))


def _work(admin: TableAdmin, options: argparse.Namespace) -> JobReport:
    regions = {parse_region_id(text) for text in options.regions} if options.regions else None
    request = GcRequest(regions=regions, dry_run=options.dry_run, wait=options.wait, holder=options.holder)
    return recorded_step(
        admin.insight,
        JobKey("gc"),
        options.holder,
        lambda holder: admin.collect_garbage(replace(request, holder=holder)),
        dry_run=options.dry_run,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gc.py", description="Delete what nobody needs any more.")
    parser.add_argument("--regions", nargs="*", metavar="UUID", help="only these regions")
    parser.add_argument("--wait", action="store_true", help="wait for the grace period of what this run drains")
    add_job_options(parser)
    add_holder_option(parser)
    return parser


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
