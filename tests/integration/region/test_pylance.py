"""One manifest format for pylance's writer and ours, on a real table."""

import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.format.paths import parse_generation_directory, region_directory
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import ManifestStore, RegionStatus, check_epoch, claim, drain, raise_wal_hint
from memwal_core.settings import StorageSettings
from memwal_core.storage import open_store
from testkit.rng import seeded_rng

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
    pa.field("value", pa.float32()),
])  # fmt: skip
FAST = {"durable_write": True, "max_wal_flush_interval_ms": 1}


def _rows(*ids: int, value: float = 1.0) -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def dataset(tmp_path: Path) -> lance.LanceDataset:
    dataset = lance.write_dataset(_rows(1), str(tmp_path / "table"))
    dataset.initialize_mem_wal()
    return dataset


@pytest.fixture
def manifests(dataset: lance.LanceDataset) -> ManifestStore:
    settings = StorageSettings(fsync=False)
    return ManifestStore(open_store(dataset.uri, settings=settings), IdSource(seeded_rng(1)), settings=settings)


def _visible_ids(dataset: lance.LanceDataset, manifests: ManifestStore) -> list[int]:
    manifest = manifests.load(REGION)
    snapshot = lance.mem_wal.ShardSnapshot(str(REGION))
    for entry in manifest.flushed_generations:
        snapshot = snapshot.with_sstable(entry.generation, entry.path)
    scanner = lance.mem_wal.LsmScanner.from_snapshots(dataset, [snapshot])
    return sorted(scanner.to_table()["id"].to_pylist())


@pytest.mark.req("FMT-01", "FMT-12", "FMT-13", "FMT-32")
def test_manifest_of_pylances_writer_is_read(
    dataset: lance.LanceDataset, manifests: ManifestStore, tmp_path: Path
) -> None:
    with dataset.mem_wal_writer(str(REGION), **FAST) as writer:
        writer.put(_rows(2, 3))
    stored = manifests.load(REGION)
    assert manifests.region_ids() == [REGION]
    assert (stored.writer_epoch, stored.current_generation, stored.status) == (1, 2, RegionStatus.ACTIVE)
    (entry,) = stored.flushed_generations
    assert (entry.generation, entry.physical_rows) == (1, 2)
    assert parse_generation_directory(entry.path) == 1
    assert (tmp_path / "table" / region_directory(REGION) / entry.path / "_versions").is_dir()
    assert entry.unknown


@pytest.mark.req("MAN-30", "WRT-15", "WRT-76")
def test_pylances_writer_takes_over_a_region_of_ours(dataset: lance.LanceDataset, manifests: ManifestStore) -> None:
    manifests.create(REGION, region_spec_id=0, region_field_values={"f": b"\x07\x00\x00\x00"})
    epoch = claim(manifests, REGION).writer_epoch
    with dataset.mem_wal_writer(str(REGION), **FAST) as writer:
        writer.put(_rows(2))
    stored = manifests.load(REGION)
    assert stored.writer_epoch == epoch + 1
    assert dict(stored.region_field_values) == {"f": b"\x07\x00\x00\x00"}
    assert [entry.generation for entry in stored.flushed_generations] == [1]
    assert _visible_ids(dataset, manifests) == [1, 2]
    check_epoch(epoch + 1, stored)


@pytest.mark.req("MAN-30")
def test_sealed_region_refuses_pylances_writer(dataset: lance.LanceDataset, manifests: ManifestStore) -> None:
    manifests.create(REGION, status=RegionStatus.SEALED)
    claim(manifests, REGION)
    with pytest.raises(OSError, match="sealed"):
        dataset.mem_wal_writer(str(REGION), **FAST)
    stored = manifests.load(REGION)
    assert (stored.version, stored.writer_epoch, stored.status) == (2, 1, RegionStatus.SEALED)


@pytest.mark.req("MAN-18", "MAN-19", "MAN-28", "FMT-44")
def test_pylances_writer_goes_on_after_our_drain_and_hint(
    dataset: lance.LanceDataset, manifests: ManifestStore
) -> None:
    with dataset.mem_wal_writer(str(REGION), **FAST) as writer:
        writer.put(_rows(2))
    with dataset.mem_wal_writer(str(REGION), **FAST) as writer:
        writer.put(_rows(3))
        before = manifests.load(REGION)
        manifests.update(REGION, lambda stored: drain(stored, {1}))
        manifests.update(REGION, lambda stored: raise_wal_hint(stored, stored.wal_id_last_seen + 1))
        writer.put(_rows(4))
    after = manifests.load(REGION)
    assert after.writer_epoch == before.writer_epoch
    assert [entry.generation for entry in after.flushed_generations] == [2]
    assert after.current_generation == 3
    assert _visible_ids(dataset, manifests) == [1, 3, 4]
    with dataset.mem_wal_writer(str(REGION), **FAST) as writer:
        writer.put(_rows(5))
    assert _visible_ids(dataset, manifests) == [1, 3, 4, 5]


@pytest.mark.req("MAN-22", "WRT-15")
def test_our_claim_fences_pylances_writer(dataset: lance.LanceDataset, manifests: ManifestStore) -> None:
    writer = dataset.mem_wal_writer(str(REGION), **FAST)
    writer.put(_rows(2))
    claim(manifests, REGION)
    with pytest.raises(OSError, match="fenced"):
        writer.close()
    assert manifests.load(REGION).flushed_generations == ()
