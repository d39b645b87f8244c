"""Run all jobs of one table in the right order: ``spark-submit jobs/maintain.py --uri s3://bucket/table``.

Everything runs in this process alone; a merge that needs a cluster has a job of its own
(``jobs/merge.py``). Exit codes: 0 done, 2 bad input or unsafe retention, 3 nothing to do, 4
conflict, pause or storage failure (try again), 5 something needs somebody to look at it.
"""

from __future__ import annotations

import argparse
import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import TableAdmin
from memwal_core.cli.job import JobReport, add_holder_option, add_job_options, run_job
from memwal_core.cli.telemetry import telemetry
from memwal_core.maintenance.cycle import MaintainRequest


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_job(options, lambda admin: _work(admin, options))


def _work(admin: TableAdmin, options: argparse.Namespace) -> JobReport:
    request = MaintainRequest(
        dry_run=options.dry_run,
        delete=options.delete,
        remove_versions=options.remove_versions,
        ignore_pauses=options.ignore_pauses,
        holder=options.holder,
    )
    return admin.maintain(request)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="maintain.py", description="Run all jobs of a table in the right order.")
    parser.add_argument("--delete", action="store_true", help="let garbage collection delete")
    parser.add_argument("--remove-versions", action="store_true", help="let compaction remove old table versions")
    parser.add_argument("--ignore-pauses", action="store_true", help="run jobs that pause because they kept failing")
    add_job_options(parser)
    add_holder_option(parser)
    return parser


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
