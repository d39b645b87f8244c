"""The tables that are attacked: together they hold every kind of file, each at the address where it was made."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import Choice
from memwal_core.coordination.job_key import JobKey
from memwal_core.format.paths import JOURNAL_DIRECTORY
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.quality.model import Check, CheckResult, QualityReport, Result, Stage
from memwal_core.region.quarantine import Quarantined
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.fuzz.changes.values import NEIGHBOUR
from testkit.rng import seeded_rng
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people, quality_of

STOLEN = "stolen"
"""Name of everybody in the neighbour, which must never be seen in another table."""


def _settings(codec: str, inline: int = 100) -> Settings:
    return Settings.model_validate(
        {
            "storage": {"fsync": False},
            "writer": {"new_region_codec": codec, "pack_below_bytes": 0},
            "index": {"snapshot_interval_s": 0, "inline_snapshot_threshold": inline},
        }
    )


def _ours(uri: str, codec: str, inline: int) -> None:
    settings = _settings(codec, inline)
    made = make_people_table(uri, rows=people(*range(5)), buckets=2, settings=settings)
    _index(made)
    table = Table.open(uri, settings=settings, rng=seeded_rng(inline))
    with table.writer() as writer:
        writer.put(people(*range(3, 40), name="first"))  # Its end leaves a record that it released the regions.
    with table.writer() as writer:
        writer.put(people(*range(10), name="second"))
        writer.flush()
        table.run(MergeRequest())
        table.run(CatchupRequest())
        writer.put(people(*range(5, 30), name="third"))
        writer.put(people(*range(20), name="fourth"))
        writer.flush()
        table.run(SnapshotRequest())
        _documents(table)
        writer.put(people(*range(60, 70), name="tail"))
        writer.put(people(*range(65, 75), name="newest"))
        # What a writer leaves that died: closing would flush the rest.
        _keep(uri)


def _index(table: BaseTable) -> None:
    dataset: Any = table.dataset()
    for column, kind in (("name", "BTREE"), ("score", "BITMAP"), ("name", "INVERTED")):
        dataset.create_scalar_index(column, kind, name=f"{column}_{kind.lower()}_idx")


def _documents(table: Table) -> None:
    """Write what jobs and people leave: results of checks, a quarantine, a freeze and its end, a journal."""
    now = datetime(2026, 6, 1, tzinfo=UTC)
    quality = quality_of(table)
    region, other = (each.region_id for each in table.status().regions)
    results = (CheckResult(Check.KEY_UNIQUE, Result.PASSED, "base table", "5 rows"),)
    for stage in Stage:
        quality.record(QualityReport(table.uri, stage, JobOutcome.DONE, 3, results, (), now.isoformat(), 1.0))
    quality.quarantine.add(Quarantined(region, 1, ("a reason",), now.isoformat()))
    quality.quarantine.add(Quarantined(other, 1, ("a reason",), now.isoformat()))
    quality.quarantine.release(other, 1, now)
    table.freeze("to leave a record", by="testkit")
    table.thaw(Decision(Choice.ACCEPT, "testkit", reason="it was only for the record"))
    with table.opened.leases.acquire(JobKey("compact"), "testkit"):
        pass
    copy = f"{table.uri}.copy"
    table.run(BackupRequest(target=copy))
    shutil.copytree(f"{copy}/{JOURNAL_DIRECTORY}", f"{table.uri}/{JOURNAL_DIRECTORY}")
    shutil.rmtree(copy)


def _native(uri: str) -> None:
    made = make_people_table(uri, rows=people(*range(5)), buckets=2, settings=_settings("arrow"))
    _index(made)
    for number, ids in ((1, range(0, 40, 2)), (2, range(1, 40, 2))):
        first, second = people(*ids, name="first"), people(*ids[:5], name="second")
        write_native_generations(uri, native_region_id(number), [[Put(first)], [Put(second)]])
    Table.open(uri, settings=_settings("arrow"), rng=seeded_rng(1)).run(SnapshotRequest())
    _keep(uri)


def _keep(uri: str) -> None:
    shutil.copytree(uri, f"{uri}.kept")


MAKERS: Mapping[str, Callable[[str], None]] = {
    "lance": lambda uri: _ours(uri, "lance", 100),
    "arrow": lambda uri: _ours(uri, "arrow", 0),
    "pylance": _native,
}
"""Who wrote the table, and in which codec. The first has its region snapshot in the manifest, the second in a file."""


def make_tables(directory: Path) -> dict[str, Path]:
    """Make all tables and their neighbour in an empty directory; maker -> table."""
    make_people_table(str(directory / Path(NEIGHBOUR).name), rows=people(*range(100), name=STOLEN), buckets=2)
    tables = {}
    for maker, make in MAKERS.items():
        path = directory / f"{maker}.lance"
        make(str(path))
        shutil.rmtree(path)
        shutil.copytree(f"{path}.kept", path)
        shutil.rmtree(f"{path}.kept")
        tables[maker] = path
    return tables
