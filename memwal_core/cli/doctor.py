"""`memwal doctor`: check every invariant of a table and change nothing."""

from __future__ import annotations

import sys

from rich.console import Console

from memwal_core.cli.options import AsJson, OutputVocabulary, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_findings
from memwal_core.format.memwal_index.legacy import LegacyIndex
from memwal_core.jobs.health import Health
from memwal_core.text import show_bytes
from memwal_core.vocabulary import Vocabulary, renamed, word

_NEEDS_OPERATOR = 5


def doctor(
    uri: TableUri,
    storage_option: StorageOptions = None,
    vocabulary: OutputVocabulary = Vocabulary.REGION,
    json: AsJson = False,
) -> None:
    """Check every signal and every invariant of the table: findings with evidence, risk and remedy.

    Exit codes: 0 healthy, 2 bad input, 4 storage failure (try again), 5 a finding needs an operator.
    """
    health = open_table(uri, storage_option).doctor()
    if json:
        print_json(renamed(health.to_dict(), vocabulary))
    else:
        _show(health, vocabulary)
    sys.exit(0 if health.healthy else _NEEDS_OPERATOR)


def _show(health: Health, vocabulary: Vocabulary) -> None:
    console = Console(highlight=False, soft_wrap=True)
    seen, facts = health.seen, health.facts()
    version = seen.state.version if seen.state is not None else "unreadable"
    console.print(
        f"{health.table_uri}  version {version}, {len(seen.regions)} {word('regions', vocabulary)}, "
        f"{show_bytes(int(str(facts['region_bytes'])))} below _mem_wal, {facts['keys_sampled']:,} keys compared",
        markup=False,
    )
    show_findings(console, health.findings, vocabulary)
    if seen.legacy:
        _show_legacy(console, seen.legacy[-1])
    if health.unknown:
        console.print(f"\nnot measured: {', '.join(health.unknown)}", markup=False)
    console.print("healthy" if health.healthy else "needs an operator", style="bold", markup=False)


def _show_legacy(console: Console, legacy: LegacyIndex) -> None:
    console.print(f"\nearly MemWAL index of version {legacy.version}", style="bold", markup=False)
    for each in legacy.mem_wals:
        console.print(
            f"  {each.region} generation {each.generation}: {each.state.value}, owner {each.owner_id or '-'}, "
            f"WAL entries {each.wal_entries if each.wal_entries is not None else 'unreadable'} at {each.wal_location}, "
            f"MemTable at {each.mem_table_location}, updated by version {each.last_updated_dataset_version}",
            markup=False,
        )
