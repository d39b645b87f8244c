"""Tables that pylance's LSM readers can read look the same through ours, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.mem_wal import LsmPointLookupPlanner, LsmScanner, ShardSnapshot

from memwal_core.reader import ReadPlan
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.view import TableView
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people
from testkit.tables.readable import keys_of

KEYS = 60
FILTERS = [None, "score > 20", "name LIKE 'gen%'", "id IN (1, 2, 3, 50)", "name = 'p7' OR score < 5"]


def _snapshots(plan: ReadPlan) -> list[ShardSnapshot]:
    snapshots = []
    for region in plan.regions:
        snapshot = ShardSnapshot(str(region.region_id)).with_current_generation(region.manifest.current_generation)
        for flushed in region.manifest.flushed_generations:
            snapshot = snapshot.with_sstable(flushed.generation, flushed.path)
        snapshots.append(snapshot)
    return snapshots


def _written_by_us(uri: str, rng: np.random.Generator) -> None:
    with TableWriter.open(make_people_table(uri, rows=people(*range(40)), buckets=2)) as writer:
        for number in range(4):
            writer.put(people(*rng.choice(KEYS, 12).tolist(), name=f"gen{number}"))
            writer.delete(keys_of(*rng.choice(KEYS, 4, replace=False).tolist()))
            writer.put(people(*rng.choice(KEYS, 2).tolist(), name=f"gen{number} again"))
            writer.flush()


def _written_by_pylance(uri: str, rng: np.random.Generator) -> None:
    make_people_table(uri, rows=people(*range(40)), buckets=1)
    key = pa.schema([PEOPLE.field("id")])

    def generation(number: int) -> list[Put | Delete]:
        gone = pa.table({"id": rng.choice(KEYS, 4, replace=False)}, schema=key)
        return [Put(people(*rng.choice(KEYS, 12).tolist(), name=f"gen{number}")), Delete(gone)]

    write_native_generations(uri, native_region_id(1), [generation(number) for number in range(4)])


def _native(uri: str, view: TableView, filter_sql: str | None) -> list[dict[str, object]]:
    scanner = LsmScanner.from_snapshots(lance.dataset(uri), _snapshots(view.scan().plan)).project(PEOPLE.names)
    rows = (scanner if filter_sql is None else scanner.filter(filter_sql)).to_table()
    return rows.select(PEOPLE.names).sort_by("id").to_pylist()


@pytest.mark.req("RD-06", "RD-39")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("write", [_written_by_us, _written_by_pylance])
def test_scans_counts_and_lookups_are_those_of_pylance(tmp_path: Path, write, seed: int) -> None:
    uri = str(tmp_path / "t")
    write(uri, np.random.default_rng(seed))
    view = Table.open(uri).view()
    planner = LsmPointLookupPlanner(lance.dataset(uri), _snapshots(view.scan().plan))

    for filter_sql in FILTERS:
        native = _native(uri, view, filter_sql)
        request = ScanRequest(filter_sql=filter_sql)
        assert view.scan(request).to_arrow().sort_by("id").to_pylist() == native
        assert view.scan(request).count() == len(native)
    for key in range(KEYS):
        found = planner.plan_lookup(pa.array([key], pa.int64()), PEOPLE.names).to_table().select(PEOPLE.names)
        assert view.lookup(keys_of(key)).to_pylist() == found.to_pylist()
    assert 0 < view.scan().count() < KEYS
