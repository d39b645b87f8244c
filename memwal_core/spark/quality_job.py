"""The data-quality checks as a job."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from memwal_core.coordination.freeze import FreezeCause, accepted_failures, failure_evidence
from memwal_core.errors import CorruptionError, InternalError
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Division, Job, Piece, Proof
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityRequest, Stages
from memwal_core.jobs.quality.suites import digest_of_suites
from memwal_core.jobs.sharing.place import Engine, Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.facts import digest_of_progress
from memwal_core.quality.basis import basis_of_audits
from memwal_core.quality.model import QualityReport, Result, Stage
from memwal_core.quality.plan import QualityPlan
from memwal_core.quality.table import QualityTable
from memwal_core.spark.job_session import session_for
from memwal_core.spark.tasks import SparkTasks
from memwal_core.text import show_count

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
        plan, basis = _due(quality, request, stage)
        if isinstance(plan, QualityReport):
            return plan
        if request.dry_run:
            return _planned(plan)
        from memwal_core.quality.run import Orders, check_quality  # noqa: PLC0415 - Great Expectations takes seconds

        after = stage is Stage.AFTER
        orders = Orders(
            suites=request.suites,
            docs=_docs(context, request, stage),
            basis=basis,
            advisory=request.advisory,
            accepted=accepted_failures(context.opened.freezes.load(), basis) if after else frozenset(),
            settle=partial(_freeze_if_failed, context),
        )
        with session_for(context, "quality") as spark:
            sharing = Sharing(replace(context, executors=SparkTasks(spark, context.opened.uri)), Engine.SPARK, request)
            sharing.choose(Work())
            return check_quality(quality, plan, spark, sharing, orders=orders)

    def divide(self, context: JobContext, request: QualityRequest) -> Division:
        """Make one piece per stage that has something to check."""
        pieces, reports = [], []
        for stage in _stages(request):
            plan, _ = _due(_quality(context), request, stage)
            if isinstance(plan, QualityReport):
                _log.info("%s a merge: %s", stage.value, plan.why())
                reports.append(plan)
                continue
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
                if each["result"] == Result.FAILED.value and not report["advisory"]:
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


def _freeze_if_failed(context: JobContext, report: QualityReport) -> None:
    if report.stage is Stage.AFTER and report.failed and not report.advisory:
        evidence = {
            **failure_evidence(report.basis, tuple(each.failure for each in report.failed)),
            "version": report.version,
            "failed": {each.check.value: each.evidence for each in report.failed},
        }
        context.opened.freezes.add(FreezeCause.CHECK_FAILED, evidence, "quality")


def _quality(context: JobContext) -> QualityTable:
    return QualityTable(context.base, context.manifests, context.settings)


def _stages(request: object) -> list[Stage]:
    assert isinstance(request, QualityRequest)  # noqa: S101 - made by ``divide``
    return list(Stage) if request.stage is Stages.BOTH else [Stage(request.stage.value)]


def _for_stage(request: QualityRequest, stage: Stage) -> QualityRequest:
    since = None if stage is Stage.BEFORE else request.since
    return request.model_copy(update={"stage": Stages(stage.value), "since": since})


def _docs(context: JobContext, request: QualityRequest, stage: Stage) -> str:
    if not request.docs:
        return ""
    uri = context.opened.uri.rstrip("/")
    # Tables of one name at two addresses keep pages of their own.
    folder = f"{uri.rpartition('/')[2]}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}"
    return f"{request.docs.rstrip('/')}/{folder}-{stage.value}"


def _due(quality: QualityTable, request: QualityRequest, stage: Stage) -> tuple[QualityPlan | QualityReport, str]:
    """Return what to check, and its basis; instead of the plan, a report that says why nothing is due."""
    if stage is Stage.BEFORE:
        plan = quality.plan(stage)
        suites = digest_of_suites(request.suites)
        basis = basis_of_audits(plan, suites)
        if _is_known(quality, request, stage, basis) and (request.advisory or _has_seen_all(quality, plan, suites)):
            same = f"{show_count(len(plan.audits), 'waiting flushed MemTable')}: audited, by the same suites"
            return _undue(quality, plan.version, stage, same), basis
        return plan, basis
    state = quality.table.state()
    basis = digest_of_progress(state.require_details().merged_generations)
    if _is_known(quality, request, stage, basis):
        return _undue(quality, state.version, stage, "nothing was merged since the last checks"), basis
    return quality.plan(stage, since=request.since), basis


def _is_known(quality: QualityTable, request: QualityRequest, stage: Stage, basis: str) -> bool:
    """Tell whether the newest checks were of the same, and would have done no less about what failed."""
    newest = quality.newest(stage) if request.due_only else None
    if newest is None or newest.get("basis") != basis:
        return False
    return request.advisory or not newest.get("advisory")


def _has_seen_all(quality: QualityTable, plan: QualityPlan, suites: str) -> bool:
    """Tell whether no gated merge waits for another audit of what was audited.

    What an audit could not read, and the survey can, may have been mended.
    """
    seen = quality.audited(suites)
    return all(
        seen.has_seen(each.region_id, each.generation.directory)
        and not (each.generation.defect is None and seen.unreadable(each.region_id, each.generation.directory))
        for each in plan.audits
    )


def _undue(quality: QualityTable, version: int, stage: Stage, why: str) -> QualityReport:
    return QualityReport(quality.table.uri, stage, JobOutcome.NOTHING_TO_DO, version, (), (), "", 0.0, since=why)


def _planned(plan: QualityPlan) -> QualityReport:
    outcome = JobOutcome.PLANNED if _has_work(plan) else JobOutcome.NOTHING_TO_DO
    return QualityReport(plan.table_uri, plan.stage, outcome, plan.version, (), (), "", 0.0, plan=plan.to_dict())


def _has_work(plan: QualityPlan) -> bool:
    return plan.stage is Stage.AFTER or bool(plan.audits)
