"""What each job's report means to a cycle: its outcome, one sentence, and the facts for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from memwal_core.maintenance.catchup import CatchupReport, IndexResult
from memwal_core.maintenance.compact import CompactReport
from memwal_core.maintenance.gc import GcReport
from memwal_core.maintenance.ledger import progress_fact
from memwal_core.maintenance.merge import MergeReport
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.snapshot import SnapshotReport


@dataclass(frozen=True, slots=True)
class StepResult:
    """One job's report, as the cycle needs it.

    Attributes:
        outcome: How it ended.
        why: One sentence.
        report: The report itself, JSON-able.
        facts: The few values that the ledger remembers.
    """

    outcome: JobOutcome
    why: str
    report: Mapping[str, object]
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


def of_merge(report: MergeReport) -> StepResult:
    """Say how many generations were merged, or why some cannot be."""
    outcome = JobOutcome(report.outcome.value)
    facts: dict[str, object] = {
        "version": report.version_after,
        "generations": report.generations,
        "commits": len(report.commits),
    }
    # A plan, or a run that met a conflict before its last look, may know less than what is merged;
    # it never claims more.
    facts |= progress_fact({region.region_id: region.merged_after for region in report.regions})
    if outcome is JobOutcome.PLANNED:
        why = f"{report.plan.generations} generations of {len(report.regions)} regions can be merged"
    elif report.plan.stuck:
        stuck = report.plan.stuck
        first = f"{stuck[0].region_id}: {stuck[0].verdict.value}"
        why = f"{report.generations} generations merged; {len(stuck)} regions are stuck, first {first}"
    else:
        why = report.reason or f"{report.generations} generations merged in {len(report.commits)} commits"
    return StepResult(outcome, why, report.to_dict(), facts)


def of_catchup(report: CatchupReport) -> StepResult:
    """Say how many indexes were brought up."""
    moved = [each for each in report.indexes if each.result in {IndexResult.EXTENDED, IndexResult.RECORDED}]
    behind = [each.name for each in report.indexes if each.regions_behind]
    why = report.reason or f"{len(moved)} of {len(report.indexes)} indexes brought up"
    if behind and not report.reason:
        why += f"; behind: {', '.join(behind)}"
    return StepResult(report.outcome, why, report.to_dict(), {"version": report.version_after, "indexes": len(moved)})


def of_compact(report: CompactReport) -> StepResult:
    """Say how many fragments became how many."""
    counts = f"{report.fragments_before} -> {report.fragments_after} fragments"
    why = report.reason or f"{counts}: {report.plan.verdict.value}"
    facts = {"version": report.version_after, "rewrites": len(report.rewrites)}
    return StepResult(report.outcome, why, report.to_dict(), facts)


def of_snapshot(report: SnapshotReport) -> StepResult:
    """Say whether there was anything new to publish."""
    why = report.reason or f"{report.plan.regions} regions: {report.plan.reason.value}"
    return StepResult(report.outcome, why, report.to_dict(), {"version": report.version_after})


def of_gc(report: GcReport) -> StepResult:
    """Say what was collected, or would be."""
    planned = report.outcome is JobOutcome.PLANNED
    tallies = report.plan.free_by_kind() if planned else report.done
    items = sum(tally.items for tally in tallies.values())
    size = sum(tally.size_bytes for tally in tallies.values())
    freezes = report.plan.freezes
    if freezes:
        why = f"frozen: {freezes.table or next(iter(freezes.regions.values()))}"
    elif report.failures:
        why = f"{items} items collected, {len(report.failures)} could not be: {report.failures[0].error}"
    else:
        why = f"{items} items with {size} bytes {'are free' if planned else 'collected'}"
    return StepResult(report.outcome, why, report.to_dict(), {"items": items, "bytes": size})
