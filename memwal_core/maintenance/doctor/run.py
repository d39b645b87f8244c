"""Examining a table and judging what was seen."""

from __future__ import annotations

from collections import Counter

from memwal_core.maintenance.doctor.checks import CHECKS
from memwal_core.maintenance.doctor.examination import Examination
from memwal_core.maintenance.doctor.examiner import Examiner
from memwal_core.maintenance.doctor.findings import DoctorReport, Finding, Severity

_ORDER = {severity: rank for rank, severity in enumerate((Severity.CRITICAL, Severity.WARNING, Severity.INFO))}


def diagnose(seen: Examination) -> tuple[Finding, ...]:
    """Apply all checks to what was seen; pure.

    Returns:
        Findings, the most urgent first.
    """
    found = [finding for check in CHECKS for finding in check(seen)]
    return tuple(sorted(found, key=lambda each: (_ORDER[each.severity], each.finding_id, str(each.region_id))))


def examine_table(examiner: Examiner) -> DoctorReport:
    """Examine a table and report. Nothing is changed.

    On a table that is being written, a single look can catch two halves of one change. What looks
    wrong is therefore looked at again, and only what is still wrong is reported.

    Args:
        examiner: Looks at the table.

    Raises:
        UnavailableError: Storage failed. Try again.
    """
    seen = examiner.examine()
    findings = diagnose(seen)
    if any(finding.severity.needs_human for finding in findings):
        first = {finding.identity for finding in findings}
        seen = examiner.examine()
        findings = tuple(finding for finding in diagnose(seen) if finding.identity in first)
    return DoctorReport(
        table_uri=seen.table_uri,
        version=seen.state.version if seen.state is not None else None,
        regions=len(seen.regions),
        keys_sampled=sum(region.keys.num_rows for region in seen.regions if region.keys is not None),
        findings=findings,
        facts=_facts(seen),
        legacy=seen.legacy[-1] if seen.legacy else None,
    )


def _facts(seen: Examination) -> dict[str, object]:
    codecs = Counter(suffix.removeprefix(".") for region in seen.regions for suffix in region.wal)
    return {
        "recorded_generations": sum(len(region.generations) for region in seen.regions),
        "wal_entries": sum(len(region.wal_ids) for region in seen.regions),
        "wal_codecs": dict(codecs),
        "region_bytes": sum(region.size_bytes for region in seen.regions),
        "retained_versions": len(seen.retained),
    }
