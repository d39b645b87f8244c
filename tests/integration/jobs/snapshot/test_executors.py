"""A snapshot whose regions executors survey is the snapshot of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memwal_core.base_table import read_snapshot
from memwal_core.errors import FrozenError
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.format.paths import manifest_path
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.pickling_executors import PicklingExecutors
from testkit.tables.people import make_people_table, people


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Five regions, some with WAL entries that no manifest names."""
    base = make_people_table(str(tmp_path / "t"), rows=people(1), buckets=5)
    with TableWriter.open(base) as writer:
        writer.put(people(*range(40)))
        writer.flush()
        for number in range(3):
            writer.put(people(number))
    return Table.open(base.uri)


def build(table: Table, executors: Executors | None, engine: Engine, *, dry_run: bool = False):
    return table.run(SnapshotRequest(force=True, engine=engine, dry_run=dry_run), executors=executors)


@pytest.mark.parametrize("times", [1, 2])
def test_executors_survey_what_one_process_surveys(table, times):
    executors = PicklingExecutors(slots=1, times=times)
    planned = build(table, None, Engine.LOCAL, dry_run=True)

    shared = build(table, executors, Engine.SPARK)

    assert (executors.stages, executors.shares) == (["snapshot: survey regions"], [4])
    assert shared.outcome is JobOutcome.DONE
    assert (shared.plan.regions, shared.plan.hints) == (planned.plan.regions, planned.plan.hints)
    assert shared.to_dict()["where"] == {"engine": "spark", "reason": "it was asked for"}
    first = snapshot_manifests(read_snapshot(table.base, table.base.state()))
    assert build(table, None, Engine.LOCAL).outcome is JobOutcome.DONE
    assert snapshot_manifests(read_snapshot(table.base, table.base.state())) == first
    assert len(first) == 5


def test_damaged_region_that_an_executor_meets_keeps_its_row(table):
    build(table, None, Engine.LOCAL)
    region_id = table.opened.manifests.region_ids()[2]
    version = table.opened.manifests.load(region_id).version
    (Path(table.base.uri) / manifest_path(region_id, version)).write_bytes(b"")

    report = build(table, PicklingExecutors(), Engine.SPARK)

    assert report.outcome is JobOutcome.PARTIAL
    assert list(report.plan.parked) == [region_id]
    assert report.plan.regions == 5


def test_what_executors_read_is_compared_with_what_was_seen(table):
    for _ in range(2):  # The second remembers the manifests with the hints that the first raised.
        build(table, None, Engine.LOCAL)
    region_id = table.opened.manifests.region_ids()[2]
    manifest = table.opened.manifests.load(region_id)
    other = encode_manifest(replace(manifest, commit_id=bytes(16)))
    (Path(table.base.uri) / manifest_path(region_id, manifest.version)).write_bytes(other)

    with pytest.raises(FrozenError):
        build(table, PicklingExecutors(), Engine.SPARK)
