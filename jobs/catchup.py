"""Extend base table indexes: ``spark-submit jobs/catchup.py --uri s3://bucket/table --indexes title_idx``.

Lance extends an index with the threads of one process, so this runs in the driver alone; several
indexes can be extended by several such jobs at once. Exit codes: 0 done, 2 bad input, 3 nothing to
do, 4 conflict or storage failure (try again), 5 an index needs somebody to look at it, or the lease
was lost.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import CatchupRequest, TableAdmin
from memwal_core.cli.job import JobReport, add_holder_option, add_job_options, run_job
from memwal_core.cli.telemetry import telemetry
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.recording import recorded_step


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_job(options, lambda admin: _work(admin, options))


def _work(admin: TableAdmin, options: argparse.Namespace) -> JobReport:
    request = CatchupRequest(
        indexes=set(options.indexes) if options.indexes else None,
        merge_segments=options.merge_segments,
        dry_run=options.dry_run,
        holder=options.holder,
    )
    one = len(options.indexes or ()) == 1
    key = JobKey.of_index("catchup", options.indexes[0]) if one else JobKey("catchup")
    return recorded_step(
        admin.insight,
        key,
        options.holder,
        lambda holder: admin.catch_up(replace(request, holder=holder)),
        dry_run=options.dry_run,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="catchup.py", description="Extend base table indexes over merged rows.")
    parser.add_argument("--indexes", nargs="*", metavar="NAME", help="only these indexes")
    parser.add_argument("--merge-segments", action="store_true", help="make one segment of each index")
    add_job_options(parser)
    add_holder_option(parser)
    return parser


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
