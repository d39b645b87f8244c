"""Collect the garbage of one table: ``spark-submit jobs/gc.py --uri s3://bucket/table``.

The work is requests to the object store, so it runs in this process alone. Exit codes: 0 done, 2
bad input or unsafe retention, 3 nothing to do, 4 something failed or another collection is under
way (try again), 5 something is frozen and needs somebody to look at it, or the lease was lost.
"""

from __future__ import annotations

import argparse
import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import GcRequest, TableAdmin
from memwal_core.cli.job import add_holder_option, add_job_options, run_step
from memwal_core.cli.telemetry import telemetry
from memwal_core.ids import parse_region_id
from memwal_core.maintenance.jobs import JobKey


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_step(options, JobKey("gc"), lambda: _request(options), TableAdmin.collect_garbage)


def _request(options: argparse.Namespace) -> GcRequest:
    regions = {parse_region_id(text) for text in options.regions} if options.regions else None
    return GcRequest(regions=regions, dry_run=options.dry_run, wait=options.wait)


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
