"""`memwal doctor`: check every invariant of a table and change nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from memwal_core.cli.options import AsJson, OutputVocabulary, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import progress_shown, show_findings
from memwal_core.format.memwal_index.legacy import LegacyIndex
from memwal_core.observe.findings import HealthVerdict, Level
from memwal_core.text import show_bytes, show_count
from memwal_core.vocabulary import Vocabulary, renamed, word

if TYPE_CHECKING:
    from memwal_core.observe.health import Health

_EXIT_CODES = {HealthVerdict.HEALTHY: 0, HealthVerdict.NOT_MEMWAL: 3, HealthVerdict.NEEDS_OPERATOR: 5}


def doctor(
    uri: TableUri,
    storage_option: StorageOptions = None,
    vocabulary: OutputVocabulary = Vocabulary.REGION,
    json: AsJson = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every row of the base table and of flushed MemTables.")
    ] = False,
) -> None:
    """Check every signal and every invariant of the table: findings with evidence, risk and remedy.

    Exit codes: 0 healthy, 2 bad input, 3 not a MemWAL table, 4 storage failure (try again), 5 a finding needs an
    operator.
    """
    table = open_table(uri, storage_option, even_if_damaged=True)
    with progress_shown("doctor", disable=json) as progress:
        health = table.doctor(contents=deep, progress=progress)
    if json:
        print_json(renamed(health.to_dict(), vocabulary))
    else:
        _show(health, vocabulary)
    sys.exit(_EXIT_CODES[health.verdict])


def _show(health: Health, vocabulary: Vocabulary) -> None:
    console = Console(highlight=False, soft_wrap=True)
    seen, facts = health.seen, health.facts()
    version = seen.state.version if seen.state is not None else "unreadable"
    console.print(
        f"{health.table_uri}  version {version}, {show_count(len(seen.regions), word('region', vocabulary))}, "
        f"{show_bytes(int(str(facts['region_bytes'])))} below _mem_wal, "
        f"{show_count(int(str(facts['keys_sampled'])), 'key')} compared",
        markup=False,
    )
    show_findings(console, health.findings, vocabulary)
    if seen.legacy:
        _show_legacy(console, seen.legacy[-1])
    if health.unknown:
        console.print(f"\nnot measured: {', '.join(health.unknown)}", markup=False)
        for each in health.signals:
            if each.level is Level.UNKNOWN and each.reading is not None:
                told = ", ".join(f"{name}: {value}" for name, value in each.reading.evidence.items())
                console.print(f"  {each.signal}: {each.subject}, {told}; next: {each.reading.remedy}", markup=False)
    if health.verdict is HealthVerdict.NOT_MEMWAL:
        console.print("a plain Lance table: MemWAL was never enabled on it, and it has no regions", markup=False)
    console.print(health.verdict.value, style="bold", markup=False)


def _show_legacy(console: Console, legacy: LegacyIndex) -> None:
    console.print(f"\nearly MemWAL index of version {legacy.version}", style="bold", markup=False)
    for each in legacy.mem_wals:
        console.print(
            f"  {each.region} generation {each.generation}: {each.state.value}, owner {each.owner_id or '-'}, "
            f"WAL entries {each.wal_entries if each.wal_entries is not None else 'unreadable'} at {each.wal_location}, "
            f"MemTable at {each.mem_table_location}, updated by version {each.last_updated_dataset_version}",
            markup=False,
        )
