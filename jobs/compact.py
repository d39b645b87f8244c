"""Rewrite small fragments: ``spark-submit jobs/compact.py --uri s3://bucket/table``.

Lance rewrites fragments and moves their indexes in one commit of one process, so this runs in the
driver alone. Exit codes: 0 done, 2 bad input, 3 nothing to do, 4 conflict or storage failure (try
again), 5 something needs somebody to look at it, or the lease was lost.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import CompactRequest, TableAdmin
from memwal_core.cli.job import JobReport, add_holder_option, add_job_options, run_job
from memwal_core.cli.telemetry import telemetry
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.recording import recorded_step


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_job(options, lambda admin: _work(admin, options))


def _work(admin: TableAdmin, options: argparse.Namespace) -> JobReport:
    request = CompactRequest(
        force=options.force,
        remove_versions=options.remove_versions,
        dry_run=options.dry_run,
        holder=options.holder,
    )
    return recorded_step(
        admin.insight,
        JobKey("compact"),
        options.holder,
        lambda holder: admin.compact(replace(request, holder=holder)),
        dry_run=options.dry_run,
    )


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
