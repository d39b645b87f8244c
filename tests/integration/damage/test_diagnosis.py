"""The cause of damage is found in the file itself, whatever Lance says about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.flushed.read.diagnosis import diagnose_generation
from memwal_core.format.paths import LANCE_WAL_SUFFIX, generation_path, region_directory, wal_entry_path
from memwal_core.region import RegionManifest
from memwal_core.settings import Settings
from memwal_core.table import Table
from memwal_core.wal import damage_of_entry
from testkit.faults.file_damage import DAMAGES, damage_file
from testkit.tables.people import make_people_table, people

_HARMLESS = {("manifest", "deleted")}
"""The version before is still there, and only lacks what hides older rows of a key."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    uri = str(tmp_path / "people")
    make_people_table(uri, buckets=2)
    made = Table.open(uri, settings=Settings.model_validate({"writer": {"pack_below_bytes": 0}}))
    with made.writer() as writer:
        writer.put(people(*range(40)))
        writer.put(people(*range(10)))
        writer.flush()
        writer.put(people(*range(100, 120)))
    return made


def _manifests(table: Table) -> list[RegionManifest]:
    manifests = table.opened.manifests
    return manifests.load_many(manifests.region_ids())


def _file(table: Table, manifest: RegionManifest, kind: str) -> Path:
    root = Path(table.uri) / generation_path(manifest.region_id, manifest.flushed_generations[0].path)
    if kind == "manifest":
        return min((root / "_versions").glob("*.manifest"))
    if kind == "deletion file":
        return next((root / "_deletions").iterdir())
    own = sorted((root / "data").glob("*.lance"))
    return own[0] if own else Path(table.uri) / wal_entry_path(manifest.region_id, 1, LANCE_WAL_SUFFIX)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["manifest", "data file", "deletion file"])
def test_damaged_file_of_a_flushed_memtable_is_named_with_its_cause(table: Table, kind: str, damage: str) -> None:
    hurt, healthy = _manifests(table)
    path = _file(table, hurt, kind)
    damage_file(path, damage, _file(table, healthy, kind))
    found = diagnose_generation(table.base.store, hurt.region_id, hurt.flushed_generations[0].path)
    if damage == "swapped":
        return  # Whole files of another region look right one by one; what refers to them tells.
    if (kind, damage) in _HARMLESS:
        assert not found
        return
    (each,) = found
    assert (each.kind.value, each.path) == (kind, str(path.relative_to(table.uri)))
    assert each.cause
    assert not diagnose_generation(table.base.store, healthy.region_id, healthy.flushed_generations[0].path)


@pytest.mark.parametrize("damage", [each for each in DAMAGES if each != "swapped"])
def test_damaged_wal_entry_is_named_with_its_cause(table: Table, damage: str) -> None:
    hurt, _ = _manifests(table)
    path = wal_entry_path(hurt.region_id, 3, LANCE_WAL_SUFFIX)
    assert damage_of_entry(table.base.store, hurt.region_id, 3, LANCE_WAL_SUFFIX) == ""
    damage_file(Path(table.uri) / path, damage)
    assert damage_of_entry(table.base.store, hurt.region_id, 3, LANCE_WAL_SUFFIX)


def test_vanished_directories_are_told_apart(table: Table) -> None:
    hurt, healthy = _manifests(table)
    for manifest, doomed in (
        (healthy, generation_path(healthy.region_id, healthy.flushed_generations[0].path)),
        (hurt, region_directory(hurt.region_id)),
    ):
        table.base.store.delete_directory(doomed)
        (each,) = diagnose_generation(table.base.store, manifest.region_id, manifest.flushed_generations[0].path)
        assert each.path == doomed
