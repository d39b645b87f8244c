"""Run all jobs of one table in the right order: ``spark-submit jobs/maintain.py --uri s3://bucket/table``.

Everything runs in this process alone; a merge that needs a cluster has a job of its own
(``jobs/merge.py``). Exit codes: 0 done, 2 bad input or unsafe retention, 3 nothing to do, 4
conflict, pause or storage failure (try again), 5 something needs somebody to look at it.
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

from memwal_core.cli.options import open_admin
from memwal_core.errors import MemwalError
from memwal_core.maintenance.cycle import MaintainRequest
from memwal_core.maintenance.outcome import JobOutcome


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    options = _parser().parse_args(arguments)
    request = MaintainRequest(
        dry_run=options.dry_run,
        delete=options.delete,
        remove_versions=options.remove_versions,
        ignore_pauses=options.ignore_pauses,
        holder=options.holder,
    )
    try:
        report = open_admin(options.uri, options.storage_option).maintain(request)
    except MemwalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    _deliver(report.to_dict(), options.json)
    if options.ok_when_nothing and report.outcome is JobOutcome.NOTHING_TO_DO:
        return 0
    return report.outcome.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="maintain.py", description="Run all jobs of a table in the right order.")
    parser.add_argument("--uri", required=True, help="path or address of the table")
    parser.add_argument("--delete", action="store_true", help="let garbage collection delete")
    parser.add_argument("--remove-versions", action="store_true", help="let compaction remove old table versions")
    parser.add_argument("--ignore-pauses", action="store_true", help="run jobs that pause because they kept failing")
    parser.add_argument("--dry-run", action="store_true", help="only plan")
    parser.add_argument("--holder", help="who takes the leases; unique per run")
    parser.add_argument("--ok-when-nothing", action="store_true", help="exit with 0, not 3, if there is nothing to do")
    parser.add_argument("--json", metavar="FILE", help="write the report to this file, or - for stdout")
    parser.add_argument("--storage-option", action="append", metavar="KEY=VALUE", help="for the object store")
    return parser


def _deliver(report: dict[str, object], target: str | None) -> None:
    document = json.dumps(report, indent=2)
    if target == "-":
        print(document)
    elif target:
        Path(target).write_text(document + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
