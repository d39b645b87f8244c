"""The data-quality checks as a job."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memwal_core.coordination.freeze import FreezeCause
from memwal_core.errors import CorruptionError, InternalError
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Division, Job, Piece, Proof
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityRequest, Stages
from memwal_core.jobs.sharing.place import Engine, Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.quality.model import QualityReport, Result, Stage
from memwal_core.quality.plan import QualityPlan
from memwal_core.quality.table import QualityTable
from memwal_core.spark.ingest_job import session_for
from memwal_core.spark.tasks import SparkTasks

_RUNBOOKS = {Stage.BEFORE: "docs/runbooks/quarantined-generations.md", Stage.AFTER: "docs/runbooks/check-failed.md"}

_log = logging.getLogger(__name__)


class QualityJob(Job[QualityRequest, QualityReport]):
    """Executors read, Great Expectations judges, and what fails before a merge is held back from it."""

    def run(self, context: JobContext, request: QualityRequest) -> QualityReport:
        """Check one stage, or both one after the other; then the report is that of the worse one."""
        reports = [self._stage(context, request, stage) for stage in _stages(request)]
        return next((report for report in reports if report.failed), reports[-1])

    def _stage(self, context: JobContext, request: QualityRequest, stage: Stage) -> QualityReport:
        quality = _quality(context)
        since = request.since if stage is Stage.AFTER else None
        plan = quality.plan(stage, since=since)
        if request.dry_run:
            return _planned(plan)
        from memwal_core.quality.run import check_quality  # noqa: PLC0415 - Great Expectations takes seconds

        suites = request.suites if stage is Stage.BEFORE else ()
        with session_for(context, "quality") as spark:
            sharing = Sharing(replace(context, executors=SparkTasks(spark, context.opened.uri)), Engine.SPARK, request)
            sharing.choose(Work())
            docs = _docs(context, request, stage)
            report = check_quality(quality, plan, spark, sharing, suites=suites, docs=docs)
        if stage is Stage.AFTER and report.failed:
            evidence = {
                "version": report.version,
                "failed": {each.check.value: each.evidence for each in report.failed},
            }
            context.opened.freezes.add(FreezeCause.CHECK_FAILED, evidence, "quality")
        return report

    def divide(self, context: JobContext, request: QualityRequest) -> Division:
        """Make one piece per stage that has something to check."""
        pieces, reports = [], []
        for stage in _stages(request):
            plan = _quality(context).plan(stage)
            reports.append(_planned(plan))
            if _has_work(plan):
                _log.info("%s a merge: %s", stage.value, plan.to_dict())
                pieces.append(Piece(f"{stage.value} a merge", _for_stage(request, stage)))
            else:
                _log.info("%s a merge: no flushed MemTable waits for an audit", stage.value)
        return Division(reports[-1], tuple(pieces))

    def verify(
        self,
        context: JobContext,
        pieces: Sequence[Piece],
        results: Sequence[Mapping[str, object]],  # noqa: ARG002 - the stored report says it
    ) -> Proof:
        """Read what the checks found, and fail if one did.

        Raises:
            CorruptionError: A check failed. Follow the runbook that it names.
            InternalError: A job left no report.
        """
        verdicts, failed = [], []
        for stage in [stage for piece in pieces for stage in _stages(piece.request)]:
            report = _quality(context).newest(stage)
            if report is None:
                raise InternalError("a job left no report", remedy="read the log of the job", stage=stage.value)
            for each in report["results"]:
                _log.info(
                    "%s a merge: %s %s: %s %s",
                    stage.value,
                    each["check"],
                    each["result"],
                    each["subject"],
                    each["evidence"],
                )
                if each["result"] == Result.FAILED.value:
                    failed.append((stage, f"{each['check']}: {each['evidence']}"))
            checks = len(report["results"])
            verdicts.append(
                {"stage": stage.value, "version": report["version"], "checks": checks, "docs": report["docs"]}
            )
        if failed:
            runbooks = sorted({_RUNBOOKS[stage] for stage, _ in failed}, reverse=True)
            raise CorruptionError(
                "checks of the data failed",
                remedy=f"follow {' and '.join(runbooks)}",
                table=context.opened.uri,
                failed=[reason for _, reason in failed],
            )
        return Proof(
            "; ".join(f"{each['checks']} checks {each['stage']} a merge" for each in verdicts), {"checks": verdicts}
        )


def _quality(context: JobContext) -> QualityTable:
    return QualityTable(context.base, context.manifests, context.settings)


def _stages(request: object) -> list[Stage]:
    assert isinstance(request, QualityRequest)  # noqa: S101 - made by ``divide``
    return list(Stage) if request.stage is Stages.BOTH else [Stage(request.stage.value)]


def _for_stage(request: QualityRequest, stage: Stage) -> QualityRequest:
    before = stage is Stage.BEFORE
    own = {"suites": request.suites if before else (), "since": None if before else request.since}
    return request.model_copy(update={"stage": Stages(stage.value), **own})


def _docs(context: JobContext, request: QualityRequest, stage: Stage) -> str:
    if not request.docs:
        return ""
    uri = context.opened.uri.rstrip("/")
    # Tables of one name at two addresses keep pages of their own.
    folder = f"{uri.rpartition('/')[2]}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}"
    return f"{request.docs.rstrip('/')}/{folder}-{stage.value}"


def _planned(plan: QualityPlan) -> QualityReport:
    outcome = JobOutcome.PLANNED if _has_work(plan) else JobOutcome.NOTHING_TO_DO
    return QualityReport(plan.table_uri, plan.stage, outcome, plan.version, (), (), "", 0.0, plan=plan.to_dict())


def _has_work(plan: QualityPlan) -> bool:
    return plan.stage is Stage.AFTER or bool(plan.audits)
