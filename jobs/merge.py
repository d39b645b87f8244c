"""Merge one table on Spark: ``spark-submit jobs/merge.py --uri s3://bucket/table``.

Executors read and de-duplicate the flushed MemTables, write the winning rows and find what they
supersede; the driver commits. The session starts when a pass is large enough for executors
(`merge.executors_min_bytes`): a dry run, a small merge and one with nothing to do go without.
Exit codes: 0 done, 2 bad input, 3 nothing to do, 4 conflict or storage failure (try again), 5 a
region needs somebody to look at it.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.cli.job import add_holder_option, add_job_options, run_job
from memwal_core.cli.options import parse_storage_options
from memwal_core.cli.telemetry import telemetry
from memwal_core.ids import parse_region_id
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseTicket, parse_ticket
from memwal_core.maintenance.merge import MergeReport, explain_stuck
from memwal_core.maintenance.recording import merge_facts, recorded
from memwal_core.spark.merge import SparkReader
from memwal_core.spark.session import LateSession
from memwal_core.spark.single_commit import SparkWorkers

_log = logging.getLogger("memwal.jobs.merge")


def main(arguments: list[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parser().parse_args(arguments)
    return run_job(options, lambda admin: _work(admin, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="merge.py", description="Merge flushed MemTables into the base table.")
    parser.add_argument("--regions", nargs="*", metavar="UUID", help="only these regions")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="Arrow bytes of flushed MemTables per commit")
    lease = parser.add_mutually_exclusive_group()
    add_holder_option(lease)
    lease.add_argument("--lease", metavar="TICKET", help="work under a lease that was taken before")
    add_job_options(parser)
    return parser


def _work(admin: TableAdmin, options: argparse.Namespace) -> MergeReport:
    report = _merge(admin, options) if options.dry_run else _leased_merge(admin, options)
    _log.info(
        "merge ended [outcome=%s, strategy=%s, generations=%d, commits=%d, version_before=%d, version_after=%d, "
        "seconds=%.1f]",
        report.outcome.value,
        report.strategy,
        report.generations,
        len(report.commits),
        report.version_before,
        report.version_after,
        report.seconds,
    )
    stuck = explain_stuck(report.table_uri, report.plan)
    if stuck is not None:
        sys.stderr.write(f"error: {stuck}\n")
    return report


def _leased_merge(admin: TableAdmin, options: argparse.Namespace) -> MergeReport:
    key, ticket = JobKey("merge"), parse_ticket(options.lease) if options.lease else None
    holder = ticket.holder if ticket is not None else options.holder or admin.insight.new_holder()

    def work() -> MergeReport:
        if ticket is not None:
            return _merge(admin, options, ticket)
        with admin.insight.leases.acquire(key, holder) as lease:
            return _merge(admin, options, lease.ticket)

    return recorded(admin.insight, key, holder, work, ticket=ticket, facts=merge_facts)


def _merge(admin: TableAdmin, options: argparse.Namespace, ticket: LeaseTicket | None = None) -> MergeReport:
    regions = {parse_region_id(text) for text in options.regions} if options.regions else None
    if options.dry_run:
        return admin.merge(MergeRequest(regions=regions, max_bytes=options.max_bytes, dry_run=True))
    spark = LateSession(f"memwal merge {options.uri}")
    try:
        storage_options = parse_storage_options(options.storage_option) or admin.table.storage_options
        request = MergeRequest(
            regions=regions,
            max_bytes=options.max_bytes,
            reader=SparkReader(spark, storage_options),
            workers=SparkWorkers(spark, admin.table, storage_options),
            ticket=ticket,
        )
        return admin.merge(request)
    finally:
        spark.stop()


if __name__ == "__main__":
    with telemetry():
        sys.exit(main())
