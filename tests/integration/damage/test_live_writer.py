"""A disk that loses WAL entries while their writer still has the rows in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.format.paths import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.settings import Settings
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.faults.file_damage import damage_file
from testkit.tables.people import make_people_table, people

PACKED, LINKED = Settings(), Settings.model_validate({"writer": {"pack_below_bytes": 0}})


@pytest.mark.parametrize("damage", ["zeroed", "empty", "truncated", "deleted", "appended"])
@pytest.mark.parametrize("settings", [PACKED, LINKED], ids=["packed", "linked"])
def test_flush_takes_rows_from_memory_where_the_disk_has_lost_them(
    tmp_path: Path, settings: Settings, damage: str
) -> None:
    uri = str(tmp_path / "t")
    table = make_people_table(uri, buckets=1)
    writer = Table.open(uri).writer()
    writer.put(people(9))
    writer.close()
    [region] = Table.open(uri).opened.manifests.region_ids()
    with RegionWriter.open(table.with_settings(settings), region) as owner:
        hurt = owner.put(people(1, 2, name="first")).wal_id
        owner.put(people(2, 3, name="second"))
        damage_file(Path(uri) / wal_entry_path(region, hurt, LANCE_WAL_SUFFIX), damage)
        owner.flush()
    found = Table.open(uri)
    rows = found.to_arrow(consistency="durable")
    assert dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)) == {
        1: "first",
        2: "second",
        3: "second",
        9: "p9",
    }
    assert [each.finding_id for each in found.doctor(contents=True).findings if each.severity.value == "critical"] == []
