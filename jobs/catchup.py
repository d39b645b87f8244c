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

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import CatchupRequest, TableAdmin
from memwal_core.cli.job import add_holder_option, add_job_options, run_step
from memwal_core.cli.telemetry import telemetry
from memwal_core.maintenance.jobs import JobKey


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    one = len(options.indexes or ()) == 1
    key = JobKey.of_index("catchup", options.indexes[0]) if one else JobKey("catchup")
    return run_step(options, key, lambda: _request(options), TableAdmin.catch_up)


def _request(options: argparse.Namespace) -> CatchupRequest:
    indexes = set(options.indexes) if options.indexes else None
    return CatchupRequest(indexes=indexes, merge_segments=options.merge_segments, dry_run=options.dry_run)


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
