"""Hand-over of a region between Lance's own writer and ours, each killed in the middle of its stream.

``KILL_ROUNDS=50`` hands it over fifty times.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memwal_core.clock import SystemClock
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.region import RegionStatus
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.processes.rounds import rounds
from testkit.processes.writer import Acknowledged, WriterSite, start_region_writer
from testkit.simulation.view import lsm_view
from testkit.tables.native_regions import native_region_id, native_scan
from testkit.tables.people import make_people_table
from testkit.tables.readable import as_model

REGION = native_region_id(3)
CHECK_EVERY = 5
SETTINGS = Settings(
    storage=StorageSettings(fsync=False),
    writer=WriterSettings(max_memtable_rows=20, epoch_check_interval_s=1, new_region_codec="arrow"),
)


@pytest.mark.slow
@pytest.mark.req("WRT-84", "WRT-86", "MEM-42", "FMT-20")
def test_killed_writers_of_both_kinds_take_over_from_each_other_and_lose_nothing(tmp_path: Path) -> None:
    times = rounds(12)
    rng = random.Random(times)
    table = make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)
    admin = Table.open(table.uri, settings=SETTINGS)
    reader = Table.open(table.uri, settings=SETTINGS, consistency=Consistency.DURABLE)
    known = Acknowledged()
    site = WriterSite(table.uri, SETTINGS, keys=20)
    clock = SystemClock()
    for number in range(1, times + 1):
        # Lance's writer makes the region; then strictly in turn, so that each replays what the other left. Half of
        # each kind die young; the others have written much, however slow the machine is.
        acknowledged = (1, 1, 12, 12)[number % 4]
        writer = start_region_writer(site, number, REGION, native=number % 2 == 1, acknowledged=acknowledged)
        clock.sleep(rng.uniform(0, 0.2))
        known.note(writer.kill())
        if number % CHECK_EVERY == 0:
            assert known.wrong(as_model(reader.to_arrow())) == {}
        if number % (2 * CHECK_EVERY) == 0:
            admin.run(MergeRequest())
    assert known.writes > 5 * times
    assert known.wrong(lsm_view(table)) == {}
    with RegionWriter.open(table, REGION) as last:
        last.flush()
    manifest = admin.opened.manifests.load(REGION)
    assert manifest.status is RegionStatus.ACTIVE
    assert manifest.writer_epoch > times
    found = native_scan(table.uri, [manifest], ["id", "name"], "id")
    assert known.wrong(as_model(found)) == {}
