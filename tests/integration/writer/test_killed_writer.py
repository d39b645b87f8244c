"""kill -9 of a real writer process: every acknowledged row survives, none comes twice."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import lance
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.ids import IdSource, parse_region_id
from memwal_core.manifest import ManifestStore, RegionStatus
from memwal_core.storage.layout import generation_path
from memwal_core.testing.tables import make_people_table
from memwal_core.writer import RegionWriter

KILLS = 20

WRITER = """
import sys
from memwal_core.base_table import BaseTable
from memwal_core.ids import parse_region_id
from memwal_core.testing.tables import people
from memwal_core.writer import RegionWriter
uri, region, first = sys.argv[1], parse_region_id(sys.argv[2]), int(sys.argv[3])
writer = RegionWriter.open(BaseTable.open(uri), region)
for step in range(first, first + 100_000):
    writer.put(people(step, step % 50, name=f"s{step}"))
    print(step, flush=True)
    if step % 7 == 0:
        writer.flush()
"""


def _write_until_killed(uri: str, region_id: str, first: int, acknowledgements: int) -> int:
    """Run the writer, kill it after some acknowledgements, and return the last acknowledged step."""
    command = [sys.executable, "-c", WRITER, uri, region_id, str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        last = first - 1
        for _ in range(acknowledgements):
            line = process.stdout.readline()
            assert line, "the writer ended by itself"
            last = int(line)
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        # A line is whole only if the process got that far; what it acknowledged counts.
        return int(rest[-1]) if rest else last


def _lsm_view(table: BaseTable, region_id) -> dict[int, str]:
    """Apply the flushed MemTables in order, then the replayed rows."""
    writer = RegionWriter.open(table, region_id)
    manifest = ManifestStore(table.store, IdSource()).load(region_id)
    view: dict[int, str] = {}
    for record in manifest.flushed_generations:
        rows = lance.dataset(table.store.uri_of(generation_path(region_id, record.path))).to_table()
        assert len(set(rows.column("id").to_pylist())) == rows.num_rows
        view |= dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))
    rows = writer.memtable.to_table()
    return view | dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.req("WRT-03", "WRT-38", "WRT-72", "WRT-87", "MEM-25")
def test_twenty_killed_writers_lose_no_acknowledged_row(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "people.lance"))
    region_id = IdSource().region_id()
    ManifestStore(table.store, IdSource()).create(region_id, status=RegionStatus.SEALED)
    rng = random.Random(20)
    acknowledged = 99
    for _ in range(KILLS):
        acknowledged = _write_until_killed(table.uri, str(region_id), acknowledged + 1, rng.randint(1, 25))
    view = _lsm_view(table, parse_region_id(str(region_id)))
    lost = [step for step in range(100, acknowledged + 1) if view.get(step) != f"s{step}"]
    assert lost == []
    for small in range(50):
        newest = max(step for step in range(100, acknowledged + 1) if step % 50 == small)
        assert int(view[small][1:]) >= newest, small
