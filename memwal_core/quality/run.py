"""Running one stage of the checks on Spark. Only the quality job and its tests import this."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql import SparkSession

from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.quality.checks.after import AfterMerge
from memwal_core.quality.checks.before import check_before
from memwal_core.quality.docs import docs_directory
from memwal_core.quality.expectations import ExpectationRun
from memwal_core.quality.model import QualityReport, Result, Stage, outcome_of
from memwal_core.quality.plan import QualityPlan
from memwal_core.quality.table import QualityTable
from memwal_core.region.quarantine import Quarantined

_log = logging.getLogger(__name__)


def check_quality(
    quality: QualityTable,
    plan: QualityPlan,
    spark: SparkSession,
    sharing: Sharing,
    *,
    suites: Sequence[str] = (),
    docs: str = "",
) -> QualityReport:
    """Run the checks of a plan, quarantine what failed before a merge, and store the report.

    Do not run the checks after a merge during another merge: a merge in two commits changes the number of rows before
    it records its progress.

    Args:
        quality: The table.
        plan: From ``QualityTable.plan``.
        spark: The session.
        sharing: Compares the keys of the table after a merge.
        suites: Files with users' suites for the rows of flushed MemTables.
        docs: Directory, or address in an object store that the table's options reach, of the Data Docs site; none if
            empty.

    Raises:
        InvalidRequestError: A file has no suite. Correct the request.
        UnavailableError: Storage failed. Run again.
        CorruptionError: A manifest contradicts itself. Run ``memwal doctor``.
    """
    clock = quality.table.clock
    began = clock.monotonic()
    quarantined: tuple[Quarantined, ...] = ()
    table = quality.table
    with docs_directory(docs, table.storage_options, table.settings.storage) as site:
        examination = ExpectationRun(site)
        if plan.stage is Stage.BEFORE:
            results, quarantined = check_before(quality, plan, spark, examination, suites)
        else:
            results = AfterMerge(quality, plan, spark, sharing, examination).run()
    report = QualityReport(
        table_uri=plan.table_uri,
        stage=plan.stage,
        outcome=outcome_of(results),
        version=plan.version,
        results=results,
        quarantined=quarantined,
        ended_at=clock.now().isoformat(),
        seconds=clock.monotonic() - began,
        docs=docs,
    )
    for result in results:
        if result.result is Result.FAILED:
            _log.warning(
                "quality check failed [check=%s, subject=%s]: %s", result.check.value, result.subject, result.evidence
            )
    quality.record(report)
    return report
