"""Who reads and writes which part of the MemWAL index: writers, the builder, readers and mergers on one table."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, read_snapshot
from memwal_core.errors import CorruptionError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader import Consistency
from memwal_core.region import ManifestStore
from memwal_core.region.spec import RegionField, RegionSpec
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.damage import Vandal
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model


def seen(uri: str, consistency: Consistency = Consistency.SNAPSHOT) -> dict[int, str]:
    """Id -> name, as a reader that opens the table now sees it."""
    return as_model(Table.open(uri).to_arrow(consistency=consistency))


@pytest.mark.req("IDX-05", "SHD-16")
def test_readers_take_regions_from_the_snapshot_and_merge_them_with_the_base_table(tmp_path: Path) -> None:
    """Writers read the configuration, the builder publishes regions, readers find them, mergers write progress."""
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1, 2, 3), buckets=3)
    admin = Table.open(uri)
    with TableWriter.open(table) as writer:  # Routed by the spec of the index.
        writer.put(people(2, 4, *range(10, 20), name="new"))
        writer.delete(pa.table({"id": [3, *range(10, 20)]}))
        writer.flush()
        assert len(admin.opened.manifests.region_ids()) == len(writer.writers) == 3
        admin.run(SnapshotRequest())
        writer.put(people(1, 5, name="later"))
        writer.flush()

    published = read_snapshot(table, table.state())
    assert published is not None
    assert published.num_rows == len(admin.opened.manifests.region_ids())
    # At run time, newest wins: regions of the snapshot over the base table, which has none of their rows yet.
    assert seen(uri) == {1: "p1", 2: "new", 4: "new"}
    assert seen(uri, Consistency.LATEST) == {1: "later", 2: "new", 4: "new", 5: "later"}
    admin.run(SnapshotRequest())
    assert seen(uri) == {1: "later", 2: "new", 4: "new", 5: "later"}

    admin.run(
        MergeRequest()
    )  # Progress with the rows: the snapshot still lists the generations, and no row counts twice.
    assert admin.base.state().require_details().num_regions == published.num_rows
    assert lance.dataset(uri).count_rows() == 4
    assert seen(uri) == {1: "later", 2: "new", 4: "new", 5: "later"}


@pytest.mark.req("IDX-05", "BLD-17")
def test_reader_of_the_snapshot_asks_no_region_manifest(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1), buckets=1)
    with TableWriter.open(table) as writer:
        writer.put(people(2))
        writer.flush()
    admin = Table.open(uri)
    admin.run(SnapshotRequest())
    (region,) = admin.opened.manifests.region_ids()

    with patch.object(ManifestStore, "load", side_effect=AssertionError("a manifest was read")):
        assert seen(uri) == {1: "p1", 2: "p2"}
    Vandal(table).garble_manifest(region)
    assert seen(uri) == {1: "p1", 2: "p2"}
    with pytest.raises(CorruptionError):
        seen(uri, Consistency.LATEST)


@pytest.mark.req("SPEC-35")
def test_region_value_is_computed_at_creation_and_reappears_in_the_snapshot(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(people(), uri)
    table = BaseTable.open(uri)
    field_ids = table.state().field_ids
    parameters = {"hash": "murmur3_x86_32", "num_buckets": "4"}
    spec = RegionSpec(1, (RegionField("user_bucket", (field_ids["id"],), "bucket", None, "int32", parameters),))
    table.create_mem_wal_index([spec])
    rows = people(*range(40))
    with TableWriter.open(table) as writer:
        writer.put(rows)
        created = {value[0]: each.region_id for value, each in writer.writers.items()}
        writer.flush()
    admin = Table.open(uri)
    stored = {
        manifest.region_id: int.from_bytes(manifest.region_field_values["user_bucket"], "little")
        for manifest in map(admin.opened.manifests.load, admin.opened.manifests.region_ids())
    }
    assert stored == {region: bucket for bucket, region in created.items()}
    assert set(stored.values()) == {0, 1, 2, 3}

    admin.run(SnapshotRequest())

    snapshot = read_snapshot(admin.base, admin.base.state())
    assert snapshot is not None
    assert snapshot.schema.field("region_field_user_bucket").type == pa.int32()
    in_snapshot = dict(
        zip(
            (bytes(each) for each in snapshot.column("region_id").to_pylist()),
            snapshot.column("region_field_user_bucket").to_pylist(),
            strict=True,
        )
    )
    assert in_snapshot == {region.bytes: bucket for region, bucket in stored.items()}
