"""Printing the findings of a table, the same way for every command."""

from __future__ import annotations

from rich.console import Console

from memwal_core.jobs.findings import Finding, Severity
from memwal_core.vocabulary import Vocabulary, word

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}


def show_findings(console: Console, findings: tuple[Finding, ...], vocabulary: Vocabulary = Vocabulary.REGION) -> None:
    """Print each finding with its evidence, its risk, what to do and where that is explained."""
    for finding in findings:
        console.print(
            f"\n{finding.severity.value}: {finding.finding_id}", style=_STYLES[finding.severity], markup=False
        )
        if finding.region_id is not None:
            console.print(f"  {word('region', vocabulary)}: {finding.region_id}", markup=False)
        console.print(f"  {finding.summary}", markup=False)
        for name, value in finding.evidence.items():
            if name != "subject":
                console.print(f"    {word(name, vocabulary)}: {value}", markup=False)
        console.print(f"  risk: {finding.risk}", markup=False)
        console.print(f"  next: {finding.remedy}", markup=False)
        console.print(f"  see: {finding.runbook}", markup=False)
