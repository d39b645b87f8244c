"""Extend base table indexes: ``spark-submit jobs/catchup.py --uri s3://bucket/table --indexes title_idx``.

Lance extends an index with the threads of one process, so this runs in the driver alone; several
indexes can be extended by several such jobs at once. Exit codes: 0 done, 2 bad input, 3 nothing to
do, 4 conflict or storage failure (try again), 5 an index needs somebody to look at it, or the lease
was lost.
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

from memwal_core.admin import CatchupRequest
from memwal_core.cli.options import open_admin
from memwal_core.errors import MemwalError
from memwal_core.maintenance.outcome import JobOutcome


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    options = _parser().parse_args(arguments)
    try:
        admin = open_admin(options.uri, options.storage_option)
        request = CatchupRequest(
            indexes=set(options.indexes) if options.indexes else None,
            merge_segments=options.merge_segments,
            dry_run=options.dry_run,
            holder=options.holder,
        )
        report = admin.catch_up(request)
    except MemwalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    _deliver(report.to_dict(), options.json)
    if options.ok_when_nothing and report.outcome is JobOutcome.NOTHING_TO_DO:
        return 0
    return report.outcome.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="catchup.py", description="Extend base table indexes over merged rows.")
    parser.add_argument("--uri", required=True, help="path or address of the table")
    parser.add_argument("--indexes", nargs="*", metavar="NAME", help="only these indexes")
    parser.add_argument("--merge-segments", action="store_true", help="make one segment of each index")
    parser.add_argument("--dry-run", action="store_true", help="only plan")
    parser.add_argument("--holder", help="who takes the lease; unique per run")
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
