"""Examine a table and judge what was observed."""

from __future__ import annotations

from memwal_core.observe.doctor.checks import CHECKS
from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.doctor.examiner import Examiner
from memwal_core.observe.findings import Finding, Level, ordered


def diagnose(seen: Examination) -> tuple[Finding, ...]:
    """Apply all checks to what was seen; pure. Return the findings, the most urgent first."""
    return ordered(finding for check in CHECKS for finding in check(seen))


def look_twice(examiner: Examiner) -> tuple[Examination, tuple[Finding, ...]]:
    """Examine a table; return what was seen and what is wrong. Nothing is changed.

    On a table that is being written, a single look can catch two halves of one change. What looks wrong is therefore
    looked at again, and only what is still wrong is reported.
    """
    seen = examiner.examine()
    findings = diagnose(seen)
    if any(finding.severity.level is not Level.OK for finding in findings):
        first = {finding.identity for finding in findings}
        seen = examiner.examine()
        findings = tuple(finding for finding in diagnose(seen) if finding.identity in first)
    return seen, findings
