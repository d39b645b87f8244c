"""Rewrite small fragments: ``spark-submit jobs/compact.py --uri s3://bucket/table``.

Lance rewrites fragments and moves their indexes in one commit of one process, so this runs in the
driver alone. Exit codes: 0 done, 2 bad input, 3 nothing to do, 4 conflict or storage failure (try
again), 5 something needs somebody to look at it, or the lease was lost.
"""

from __future__ import annotations

import argparse
import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import CompactRequest, TableAdmin
from memwal_core.cli.job import add_holder_option, add_job_options, run_step
from memwal_core.cli.telemetry import telemetry
from memwal_core.maintenance.jobs import JobKey


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_step(options, JobKey("compact"), lambda: _request(options), TableAdmin.compact)


def _request(options: argparse.Namespace) -> CompactRequest:
    return CompactRequest(force=options.force, remove_versions=options.remove_versions, dry_run=options.dry_run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="compact.py", description="Rewrite small and half deleted fragments.")
    parser.add_argument("--force", action="store_true", help="rewrite small neighbours however few they are")
    parser.add_argument("--remove-versions", action="store_true", help="then remove old versions that nothing keeps")
    add_job_options(parser)
    add_holder_option(parser)
    return parser


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
