"""Planning and judging for the quality DAG."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypedDict

from memwal_core.cli.quality import open_quality
from memwal_core.errors import CorruptionError, InternalError
from memwal_core.quality import Result, Stage
from memwal_core.tasks.targets import Target, choose_targets, open_target

_log = logging.getLogger(__name__)

_RUNBOOKS = {Stage.BEFORE: "docs/runbooks/held-generations.md", Stage.AFTER: "docs/runbooks/check-failed.md"}


class QualityItem(TypedDict):
    """One Spark job.

    Attributes:
        label: For people.
        arguments: Of ``jobs/quality.py``.
        stage: ``before`` or ``after``.
        target: The table.
    """

    label: str
    arguments: list[str]
    stage: str
    target: Target


class QualityVerdict(TypedDict):
    """What the checks of one table found.

    Attributes:
        table: Name of the table.
        stage: ``before`` or ``after``.
        version: Version that was looked at.
        checks: Checks that ran.
        docs: Where Data Docs are; empty if none were asked for.
    """

    table: str
    stage: str
    version: int
    checks: int
    docs: str


def plan_quality(
    params: Mapping[str, object], events: Iterable[Mapping[str, object]] = (), holder: str = ""
) -> list[QualityItem]:
    """Plan the checks of a run's tables and log what they will look at.

    Args:
        params: Of the run: ``table``, ``stage``, ``suites``, ``docs``, ``dry_run`` and the storage's.
        events: What merges said about tables that they changed.
        holder: The run's id, for the ledger; the jobs make one up if it is empty.

    Returns:
        The jobs; empty on a dry run or if there is nothing to check.

    Raises:
        InvalidRequestError: Parameters do not fit, or a table is not registered.
        CorruptionError: A manifest contradicts itself.
        UnavailableError: Storage failed; try again.
    """
    stages = list(Stage) if params["stage"] == "both" else [Stage(str(params["stage"]))]
    items = []
    for target in choose_targets(params, events):
        quality = open_quality(open_target(target))
        for stage in stages:
            plan = quality.plan(stage)
            label = f"{target['name']}: {stage.value} a merge"
            if stage is Stage.BEFORE and not plan.audits:
                _log.info("%s: no flushed MemTable waits for an audit", label)
                continue
            _log.info("%s: %s", label, plan.to_dict())
            items.append(
                QualityItem(
                    label=label, arguments=_arguments(params, target, stage, holder), stage=stage, target=target
                )
            )
    if params.get("dry_run"):
        _log.info("dry run: nothing is checked")
        return []
    return items


def judge_quality(items: Collection[QualityItem]) -> list[QualityVerdict]:
    """Read what the jobs found, log every check, and fail if one did.

    Args:
        items: The jobs that ran.

    Raises:
        CorruptionError: A check failed. Follow the runbook that it names.
        InternalError: A job left no report.
        UnavailableError: Storage failed; try again.
    """
    verdicts, failed = [], []
    for item in items:
        report = open_quality(open_target(item["target"])).newest(Stage(item["stage"]))
        if report is None:
            raise InternalError("a job left no report", remedy="read the log of the job", job=item["label"])
        for each in report["results"]:
            _log.info(
                "%s: %s %s: %s %s", item["label"], each["check"], each["result"], each["subject"], each["evidence"]
            )
            if each["result"] == Result.FAILED.value:
                failed.append((item, f"{each['check']}: {each['evidence']}"))
        verdicts.append(
            QualityVerdict(
                table=item["target"]["name"],
                stage=item["stage"],
                version=report["version"],
                checks=len(report["results"]),
                docs=report["docs"],
            )
        )
    if failed:
        runbooks = sorted({_RUNBOOKS[Stage(item["stage"])] for item, _ in failed}, reverse=True)
        raise CorruptionError(
            "checks of the data failed",
            remedy=f"follow {' and '.join(runbooks)}",
            table=", ".join(sorted({item["target"]["name"] for item, _ in failed})),
            failed=[reason for _, reason in failed],
        )
    return verdicts


def _arguments(params: Mapping[str, object], target: Target, stage: Stage, holder: str) -> list[str]:
    arguments = ["--uri", target["uri"], "--stage", stage.value, "--ok-when-nothing", "--ok-when-failed"]
    if holder:
        arguments += ["--holder", holder]
    if params.get("docs"):
        arguments += ["--docs", f"{str(params['docs']).rstrip('/')}/{target['name'].replace('/', '_')}-{stage.value}"]
    suites = params.get("suites") or ()
    assert isinstance(suites, Sequence)  # noqa: S101 - the form's schema says so
    for suite in suites if stage is Stage.BEFORE else ():
        arguments += ["--suite", str(suite)]
    for name, value in target["storage_options"].items():
        arguments += ["--storage-option", f"{name}={value}"]
    return arguments
