"""`memwal doctor`: check every invariant of a table and change nothing."""

from __future__ import annotations

import sys

from rich.console import Console

from memwal_core.cli.options import (
    AsJson,
    OutputVocabulary,
    StorageOptions,
    TableUri,
    open_admin,
    print_json,
    show_bytes,
)
from memwal_core.index.legacy import LegacyIndex
from memwal_core.maintenance.doctor import DoctorReport, Finding, Severity
from memwal_core.vocabulary import Vocabulary, renamed, word

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}


def doctor(
    uri: TableUri,
    storage_option: StorageOptions = None,
    vocabulary: OutputVocabulary = Vocabulary.REGION,
    json: AsJson = False,
) -> None:
    """Check every invariant of the table: findings with evidence, risk and remedy.

    Exit codes: 0 healthy, 2 bad input, 4 storage failure (try again), 5 a finding needs somebody.
    """
    report = open_admin(uri, storage_option).insight.doctor()
    if json:
        print_json(renamed(report.to_dict(), vocabulary))
    else:
        _show(report, vocabulary)
    sys.exit(report.exit_code)


def _show(report: DoctorReport, vocabulary: Vocabulary) -> None:
    console = Console(highlight=False, soft_wrap=True)
    regions = word("regions", vocabulary)
    size = show_bytes(int(str(report.facts["region_bytes"])))
    console.print(
        f"{report.table_uri}  version {report.version}, {report.regions} {regions}, {size} below _mem_wal, "
        f"{report.keys_sampled:,} keys compared",
        markup=False,
    )
    for finding in report.findings:
        _show_finding(console, finding, vocabulary)
    if report.legacy is not None:
        _show_legacy(console, report.legacy)
    console.print("healthy" if report.healthy else "needs somebody to look at it", style="bold", markup=False)


def _show_finding(console: Console, finding: Finding, vocabulary: Vocabulary) -> None:
    console.print(f"\n{finding.severity.value}: {finding.finding_id}", style=_STYLES[finding.severity], markup=False)
    if finding.region_id is not None:
        console.print(f"  {word('region', vocabulary)}: {finding.region_id}", markup=False)
    console.print(f"  {finding.summary}", markup=False)
    for name, value in finding.evidence.items():
        if name != "subject":
            console.print(f"    {word(name, vocabulary)}: {value}", markup=False)
    console.print(f"  risk: {finding.risk}", markup=False)
    console.print(f"  next: {finding.remedy}", markup=False)


def _show_legacy(console: Console, legacy: LegacyIndex) -> None:
    console.print(f"\nearly MemWAL index of version {legacy.version}", style="bold", markup=False)
    for each in legacy.mem_wals:
        console.print(
            f"  {each.region} generation {each.generation}: {each.state.value}, owner {each.owner_id or '-'}, "
            f"WAL entries {each.wal_entries if each.wal_entries is not None else 'unreadable'} at {each.wal_location}, "
            f"MemTable at {each.mem_table_location}, updated by version {each.last_updated_dataset_version}",
            markup=False,
        )
