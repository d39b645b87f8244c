"""The checks before a merge: which flushed MemTables must not be merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from types import MappingProxyType

import great_expectations.expectations as gxe
from great_expectations.expectations import Expectation
from pyspark.sql import SparkSession

from memwal_core.errors import MemwalError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.quality.checks.audit import AuditFacts, AuditTask, audit_generation
from memwal_core.quality.expectations import ExpectationFinding, ExpectationRun, Suite, as_check
from memwal_core.quality.frames import generation_frame
from memwal_core.quality.model import Check, CheckResult, Result
from memwal_core.quality.plan import QualityPlan
from memwal_core.quality.table import QualityTable
from memwal_core.region.quarantine import Quarantined
from memwal_core.text import show_count

_FACTS = (
    "region_id string, generation long, rows long, unreadable string, schema_problem string, null_keys long, "
    "strays long, routing_problem string"
)
_WHO = ("region_id", "generation")
_Generation = tuple[RegionId, int]


@dataclass(frozen=True, slots=True)
class AuditFindings:
    """What an audit found.

    Attributes:
        results: In the order of the checks.
        reasons: Why flushed MemTables must not be merged.
        unreadable: Why others could not be read. A merge stops at these anyway, and they may be missing only because
            they were merged and collected meanwhile.
    """

    results: tuple[CheckResult, ...] = ()
    reasons: Mapping[_Generation, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    unreadable: Mapping[_Generation, str] = field(default_factory=lambda: MappingProxyType({}))


def check_before(
    quality: QualityTable, plan: QualityPlan, spark: SparkSession, examination: ExpectationRun, suites: Sequence[Suite]
) -> AuditFindings:
    """Audit flushed MemTables.

    Raises:
        UnavailableError: The store did not answer an executor. Run again.
        StoreRefusedError: It refused one access.
    """
    tasks = quality.audit_tasks(plan)
    if not tasks:
        return AuditFindings()
    options = dict(quality.table.storage_options)
    audited = (
        spark.sparkContext.parallelize(tasks, len(tasks)).map(partial(_audited, storage_options=options)).collect()
    )
    for each in audited:
        if isinstance(each, MemwalError):
            raise each
    facts = [each for each in audited if isinstance(each, AuditFacts)]
    frame = spark.createDataFrame([astuple(each) for each in facts], _FACTS)
    findings = examination.expect("flushed MemTables", frame, _expectations(), _WHO)
    reasons: dict[_Generation, list[str]] = {}
    results = [_result(finding, tasks, facts, reasons) for finding in findings]
    sound = [
        task
        for task, each in zip(tasks, facts, strict=True)
        if each.unreadable is None and (task.region_id, task.generation) not in reasons
    ]
    for name, expectations in distinct_names(suites):
        results.append(_user_suite(name, expectations, sound, spark, examination, options, reasons))
    unreadable = {
        (task.region_id, task.generation): each.unreadable
        for task, each in zip(tasks, facts, strict=True)
        if each.unreadable is not None
    }
    return AuditFindings(tuple(results), reasons, unreadable)


def _audited(task: AuditTask, storage_options: Mapping[str, str]) -> AuditFacts | MemwalError:
    """Return an error as a value: out of what a task of Spark raises, no caller could read it."""
    try:
        return audit_generation(task, storage_options)
    except MemwalError as error:
        return error


def distinct_names(suites: Sequence[Suite]) -> list[Suite]:
    """Number the suites that have the name of an earlier one, so that results and reasons tell them apart."""
    seen: Counter[str] = Counter()
    named = []
    for name, expectations in suites:
        seen[name] += 1
        named.append((name if seen[name] == 1 else f"{name} ({seen[name]})", expectations))
    return named


def _expectations() -> list[Expectation]:
    return [
        gxe.ExpectColumnValuesToBeNull(column="unreadable", meta=as_check(Check.READABLE)),
        gxe.ExpectColumnValuesToBeNull(column="schema_problem", meta=as_check(Check.SCHEMA)),
        gxe.ExpectColumnValuesToBeBetween(column="null_keys", max_value=0, meta=as_check(Check.KEY_NOT_NULL)),
        gxe.ExpectColumnValuesToBeBetween(column="strays", max_value=0, meta=as_check(Check.REGION_EXCLUSIVITY)),
        gxe.ExpectColumnValuesToBeNull(column="routing_problem", meta=as_check(Check.REGION_EXCLUSIVITY)),
    ]


def _result(
    finding: ExpectationFinding,
    tasks: Sequence[AuditTask],
    facts: Sequence[AuditFacts],
    reasons: dict[_Generation, list[str]],
) -> CheckResult:
    by_name = {(each.region_id, each.generation): each for each in facts}
    evidence = []
    for row in finding.rows:
        each = by_name[row["region_id"], row["generation"]]
        reason = _reason(finding.check, each)
        evidence.append(f"region {each.region_id} generation {each.generation}: {reason}")
        if finding.check is not Check.READABLE:
            reasons.setdefault((parse_region_id(each.region_id), each.generation), []).append(
                f"{finding.check.value}: {reason}"
            )
    return CheckResult(
        finding.check,
        Result.PASSED if finding.success else Result.FAILED,
        show_count(len(tasks), "flushed MemTable"),
        "; ".join(evidence) or finding.evidence,
    )


def _reason(check: Check, facts: AuditFacts) -> str:
    if check is Check.READABLE:
        return facts.unreadable or ""
    if check is Check.SCHEMA:
        return facts.schema_problem or ""
    if check is Check.KEY_NOT_NULL:
        return f"{facts.null_keys} of {facts.rows} rows have NULL in their key"
    return facts.routing_problem or f"{facts.strays} of {facts.rows} rows belong to another region"


def _user_suite(  # noqa: PLR0913  (what to check, on what, with what, and where the reasons go)
    name: str,
    expectations: Sequence[Expectation],
    tasks: Sequence[AuditTask],
    spark: SparkSession,
    examination: ExpectationRun,
    options: Mapping[str, str],
    reasons: dict[_Generation, list[str]],
) -> CheckResult:
    """Run a suite on all rows together, and only if that fails on each flushed MemTable alone."""
    subject = f"suite {name!r} on {show_count(len(tasks), 'flushed MemTable')}"
    if not tasks:
        return CheckResult(Check.USER_SUITE, Result.SKIPPED, subject, "no flushed MemTable passed the other checks")
    target = tasks[0].target
    together = examination.expect(
        f"suite {name}", generation_frame(spark, tasks, target, options), [each.copy() for each in expectations]
    )
    if all(finding.success for finding in together):
        return CheckResult(Check.USER_SUITE, Result.PASSED, subject)
    evidence = []
    for task in tasks:
        title = f"suite {name}: region {task.region_id} generation {task.generation}"
        frame = generation_frame(spark, [task], target, options)
        failed = [
            finding.evidence
            for finding in examination.expect(title, frame, [each.copy() for each in expectations])
            if not finding.success
        ]
        if failed:
            why = reasons.setdefault((task.region_id, task.generation), [])
            why.extend(f"{Check.USER_SUITE.value} {name!r}: {each}" for each in failed)
            evidence.append(f"region {task.region_id} generation {task.generation}: {'; '.join(failed)}")
    found = evidence or [finding.evidence for finding in together if not finding.success]
    return CheckResult(Check.USER_SUITE, Result.FAILED, subject, "; ".join(found))


def quarantine(quality: QualityTable, reasons: Mapping[_Generation, Sequence[str]]) -> tuple[Quarantined, ...]:
    """Hold flushed MemTables back from merges; return those that were not held before."""
    now = quality.table.clock.now().isoformat()
    holds = [Quarantined(region_id, number, tuple(why), now) for (region_id, number), why in sorted(reasons.items())]
    return tuple(entry for entry in holds if quality.quarantine.add(entry))
