"""Publish a snapshot of all regions: ``spark-submit jobs/snapshot.py --uri s3://bucket/table``.

The work is requests to the object store, many at once, so it runs in this process alone. Exit
codes: 0 done, 2 bad input, 3 nothing to do, 4 conflict or storage failure (try again), 5 a region
cannot be read, or the lease was lost.
"""

from __future__ import annotations

import argparse
import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import SnapshotRequest, TableAdmin
from memwal_core.cli.job import add_holder_option, add_job_options, run_step
from memwal_core.cli.telemetry import telemetry
from memwal_core.maintenance.jobs import JobKey


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_step(options, JobKey("snapshot"), lambda: _request(options), TableAdmin.build_snapshot)


def _request(options: argparse.Namespace) -> SnapshotRequest:
    return SnapshotRequest(force=options.force, dry_run=options.dry_run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="snapshot.py", description="Publish a snapshot of all regions.")
    parser.add_argument("--force", action="store_true", help="publish even if nothing has changed")
    add_job_options(parser)
    add_holder_option(parser)
    return parser


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
