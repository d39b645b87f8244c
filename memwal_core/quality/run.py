"""Running one stage of the checks on Spark. Only the quality job and its tests import this."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from memwal_core.holds import Hold
from memwal_core.metrics import INSTRUMENTS
from memwal_core.quality.after import AfterMerge
from memwal_core.quality.before import check_before
from memwal_core.quality.docs import docs_directory
from memwal_core.quality.expectations import Examination
from memwal_core.quality.model import QualityReport, Result, Stage, outcome_of
from memwal_core.quality.plan import QualityPlan
from memwal_core.quality.table import QualityTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QualityRequest:
    """How to run a plan.

    Attributes:
        suites: Files with users' suites for the rows of flushed MemTables.
        docs: Directory, or address in an object store that the table's options reach, of the Data
            Docs site; none if empty.
    """

    suites: Sequence[str] = ()
    docs: str = ""


def check_quality(
    quality: QualityTable, plan: QualityPlan, spark: SparkSession, request: QualityRequest | None = None
) -> QualityReport:
    """Run the checks of a plan, hold back what failed before a merge, and keep the report.

    Do not run the checks after a merge while one is under way: a merge in two commits changes the
    number of rows before it records its progress.

    Args:
        quality: The table.
        plan: From ``QualityTable.plan``.
        spark: The session.
        request: How.

    Raises:
        InvalidRequestError: A file holds no suite.
        UnavailableError: Storage failed. Run again.
        CorruptionError: A manifest contradicts itself.
    """
    request = request if request is not None else QualityRequest()
    clock = quality.table.clock
    began = clock.monotonic()
    held: tuple[Hold, ...] = ()
    table = quality.table
    with docs_directory(request.docs, table.storage_options, table.settings.storage) as docs:
        examination = Examination(docs)
        if plan.stage is Stage.BEFORE:
            results, held = check_before(quality, plan, spark, examination, request.suites)
        else:
            results = AfterMerge(quality, plan, spark, examination).run()
    report = QualityReport(
        table_uri=plan.table_uri,
        stage=plan.stage,
        outcome=outcome_of(results),
        version=plan.version,
        results=results,
        held=held,
        ended_at=clock.now().isoformat(),
        seconds=clock.monotonic() - began,
        docs=request.docs,
    )
    for result in results:
        if result.result is Result.FAILED:
            _log.warning("check failed [%s, %s]: %s", result.check.value, result.subject, result.evidence)
    quality.record(report)
    INSTRUMENTS.job_ended("quality", report.table_uri, report.outcome.value, report.seconds)
    return report
