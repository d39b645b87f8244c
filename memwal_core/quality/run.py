"""Running one stage of the checks on Spark. Only the quality job and its tests import this."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from memwal_core.jobs.quality.suites import digest_of_suites
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.quality.checks.after import AfterMerge
from memwal_core.quality.checks.before import check_before, quarantine
from memwal_core.quality.docs import docs_directory
from memwal_core.quality.expectations import ExpectationRun, load_suite
from memwal_core.quality.model import CheckResult, QualityReport, Result, Stage, outcome_of
from memwal_core.quality.plan import QualityPlan
from memwal_core.quality.table import QualityTable
from memwal_core.region.quarantine import Quarantined

_log = logging.getLogger(__name__)


def _unsettled(_report: QualityReport) -> None:
    """Leave a report without consequences."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a run of the checks may want otherwise.

    Attributes:
        suites: Files with users' suites for the rows of flushed MemTables; a wrong one stops either stage.
        docs: Directory, or address in an object store that the table's options reach, of the Data Docs site; none if
            empty.
        basis: What is remembered as checked.
        advisory: Only report failures.
        accepted: Failures after a merge that a person accepted.
        settle: Called with the report before it is stored, since a stage with a report counts as checked.
    """

    suites: Sequence[str] = ()
    docs: str = ""
    basis: str = ""
    advisory: bool = False
    accepted: frozenset[str] = frozenset()
    settle: Callable[[QualityReport], None] = _unsettled


NO_ORDERS = Orders()


def check_quality(
    quality: QualityTable,
    plan: QualityPlan,
    spark: SparkSession,
    sharing: Sharing,
    *,
    orders: Orders = NO_ORDERS,
) -> QualityReport:
    """Run the checks of a plan, quarantine what failed before a merge, and store the report.

    Do not run the checks after a merge during another merge: a merge in two commits changes the number of rows before
    it records its progress.

    Args:
        quality: The table.
        plan: From ``QualityTable.plan``.
        spark: The session.
        sharing: Compares the keys of the table after a merge.
        orders: What a run may want otherwise.

    Raises:
        InvalidRequestError: A file has no suite. Correct the request.
        UnavailableError: Storage failed. Run again.
        CorruptionError: A manifest contradicts itself. Run ``memwal doctor``.
    """
    clock = quality.table.clock
    began = clock.monotonic()
    digest = digest_of_suites(orders.suites)
    suites = [load_suite(path) for path in orders.suites]
    quarantined: tuple[Quarantined, ...] = ()
    table = quality.table
    with docs_directory(orders.docs, table.storage_options, table.settings.storage) as site:
        examination = ExpectationRun(site)
        if plan.stage is Stage.BEFORE:
            found = check_before(quality, plan, spark, examination, suites)
            results = found.results
            if not orders.advisory:
                # In this order: a merge that sees the record sees what is held back, too.
                quarantined = quarantine(quality, found.reasons)
                quality.record_audit(plan, found.unreadable, digest)
        else:
            results = tuple(
                _judged(each, orders) for each in AfterMerge(quality, plan, spark, sharing, examination).run()
            )
    report = QualityReport(
        table_uri=plan.table_uri,
        stage=plan.stage,
        outcome=outcome_of(results, advisory=orders.advisory),
        version=plan.version,
        results=results,
        quarantined=quarantined,
        ended_at=clock.now().isoformat(),
        seconds=clock.monotonic() - began,
        docs=orders.docs,
        basis=orders.basis,
        advisory=orders.advisory,
    )
    for result in results:
        if result.result is Result.FAILED:
            _log.warning(
                "quality check failed [check=%s, subject=%s]: %s", result.check.value, result.subject, result.evidence
            )
    orders.settle(report)
    quality.record(report)
    return report


def _judged(found: CheckResult, orders: Orders) -> CheckResult:
    is_accepted = found.result is Result.FAILED and found.failure in orders.accepted
    return replace(found, result=Result.ACCEPTED) if is_accepted else found
