"""The region snapshot: its columns, its file, and the names that later Lance releases give it."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.errors import CorruptionError
from memwal_core.format.footer import read_file_footer
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.snapshot import (
    build_snapshot,
    normalise_snapshot,
    snapshot_manifests,
    snapshot_schema,
)
from memwal_core.format.memwal_index.snapshot_file import snapshot_from_bytes, snapshot_to_bytes
from memwal_core.format.region_manifest.model import FlushedGeneration, RegionManifest
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionField, RegionSpec

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))
C = RegionId(uuid.UUID("0c000000-0000-4000-8000-000000000003"))
SPECS = (
    RegionSpec(1, (RegionField("bucket", (0,), "bucket"),)),
    RegionSpec(2, (RegionField("country", (1,), "identity", result_type="utf8"),)),
)
MANIFESTS = (
    RegionManifest(
        region_id=A,
        version=7,
        region_spec_id=1,
        region_field_values={"bucket": (3).to_bytes(4, "little")},
        writer_epoch=2,
        replay_after_wal_id=10,
        wal_id_last_seen=12,
        current_generation=4,
        flushed_generations=(FlushedGeneration(2, "aaaaaaaa_gen_2"), FlushedGeneration(3, "bbbbbbbb_gen_3")),
    ),
    RegionManifest(region_id=B, region_spec_id=2, region_field_values={"country": b""}),
    RegionManifest(region_id=C, version=2),
)


@pytest.mark.req(
    "IDX-15", "IDX-16", "IDX-17", "IDX-18", "IDX-19", "IDX-20", "IDX-21", "IDX-22", "IDX-23", "IDX-24", "IDX-25",
    "SHD-10",
)  # fmt: skip
def test_snapshot_has_exactly_the_manifest_columns_and_one_per_spec_field() -> None:
    assert list(snapshot_schema(SPECS)) == [
        pa.field("region_id", pa.binary(16), nullable=False),
        pa.field("version", pa.uint64(), nullable=False),
        pa.field("region_spec_id", pa.uint32(), nullable=False),
        pa.field("writer_epoch", pa.uint64(), nullable=False),
        pa.field("replay_after_wal_id", pa.uint64(), nullable=False),
        pa.field("wal_id_last_seen", pa.uint64(), nullable=False),
        pa.field("current_generation", pa.uint64(), nullable=False),
        pa.field(
            "flushed_generations",
            pa.list_(pa.struct([pa.field("generation", pa.uint64()), pa.field("path", pa.string())])),
            nullable=False,
        ),
        pa.field("region_field_bucket", pa.int32()),
        pa.field("region_field_country", pa.string()),
    ]


@pytest.mark.req(
    "IDX-15", "IDX-16", "IDX-17", "IDX-18", "IDX-19", "IDX-20", "IDX-21", "IDX-22", "IDX-23", "IDX-24"
)  # fmt: skip
def test_snapshot_has_one_row_per_region_with_its_values() -> None:
    rows = build_snapshot(MANIFESTS, SPECS).to_pylist()

    assert [row["region_id"] for row in rows] == [A.bytes, B.bytes, C.bytes]
    assert rows[0] == {
        "region_id": A.bytes,
        "version": 7,
        "region_spec_id": 1,
        "writer_epoch": 2,
        "replay_after_wal_id": 10,
        "wal_id_last_seen": 12,
        "current_generation": 4,
        "flushed_generations": [
            {"generation": 2, "path": "aaaaaaaa_gen_2"},
            {"generation": 3, "path": "bbbbbbbb_gen_3"},
        ],
        "region_field_bucket": 3,
        "region_field_country": None,
    }
    assert (rows[1]["region_field_bucket"], rows[1]["region_field_country"]) == (None, "")
    assert (rows[2]["region_spec_id"], rows[2]["region_field_bucket"], rows[2]["flushed_generations"]) == (0, None, [])


@pytest.mark.req("IDX-24")
@pytest.mark.parametrize("spec_id", [0, 2, 9])
def test_value_of_a_field_that_the_regions_own_spec_lacks_is_null(spec_id: int) -> None:
    manifest = replace(MANIFESTS[0], region_spec_id=spec_id)

    assert build_snapshot([manifest], SPECS).column("region_field_bucket").to_pylist() == [None]


def test_two_manifests_of_one_region_are_refused() -> None:
    with pytest.raises(CorruptionError, match="two manifests"):
        build_snapshot([MANIFESTS[0], MANIFESTS[0]], SPECS)


@pytest.mark.req("IDX-06", "IDX-09")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_snapshot_survives_its_lance_file(count: int) -> None:
    snapshot = build_snapshot(MANIFESTS[:count], SPECS)

    data = snapshot_to_bytes(snapshot)

    assert data.endswith(b"LANC")
    assert snapshot_from_bytes(data).equals(snapshot)
    assert snapshot_manifests(snapshot_from_bytes(data)) == MANIFESTS[:count]


@pytest.mark.req("IDX-10")
def test_snapshot_of_no_regions_keeps_the_schema_in_its_file() -> None:
    assert snapshot_from_bytes(snapshot_to_bytes(build_snapshot([], SPECS))).schema.equals(snapshot_schema(SPECS))


@pytest.mark.parametrize("data", [b"", b"LANC", b"x" * 39, b"x" * 4096, b"x" * 100 + b"LANC"])
def test_bytes_that_are_no_lance_file_are_corruption(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        snapshot_from_bytes(data)


def _as_shards(snapshot: pa.Table) -> pa.Table:
    others = {
        "region_id": "shard_id",
        "region_spec_id": "shard_spec_id",
        "replay_after_wal_id": "replay_after_wal_entry_position",
        "wal_id_last_seen": "wal_entry_position_last_seen",
        "region_field_bucket": "shard_field_bucket",
        "region_field_country": "shard_field_country",
    }
    return snapshot.rename_columns([others.get(name, name) for name in snapshot.column_names])


@pytest.mark.req("SHD-06", "SHD-07", "SHD-08", "SHD-09", "SHD-10", "SHD-12")
def test_shard_named_snapshot_reads_like_a_region_named_one() -> None:
    snapshot = build_snapshot(MANIFESTS, SPECS)
    foreign = snapshot_from_bytes(snapshot_to_bytes(_as_shards(snapshot)))

    assert "shard_id" in foreign.column_names
    assert normalise_snapshot(foreign, MemWalIndexDetails()).equals(snapshot)
    assert normalise_snapshot(snapshot, MemWalIndexDetails()).equals(snapshot)


@pytest.mark.req("SHD-11", "IDX-25")
def test_merged_generation_column_is_ignored_and_a_difference_logged(caplog: pytest.LogCaptureFixture) -> None:
    snapshot = build_snapshot(MANIFESTS, SPECS)
    early = snapshot.append_column("merged_generation", pa.array([3, 1, None], pa.uint64()))

    with caplog.at_level(logging.WARNING):
        read = normalise_snapshot(early, MemWalIndexDetails(merged_generations={A: 3, B: 5}))

    assert read.equals(snapshot)
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [B]


def test_column_under_both_names_is_corruption() -> None:
    snapshot = build_snapshot(MANIFESTS, SPECS)

    with pytest.raises(CorruptionError, match="two names"):
        normalise_snapshot(snapshot.append_column("shard_id", snapshot.column("region_id")), MemWalIndexDetails())


def test_missing_column_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="lacks columns") as caught:
        normalise_snapshot(build_snapshot(MANIFESTS, SPECS).drop_columns(["version"]), MemWalIndexDetails())

    assert caught.value.facts["missing"] == ["version"]


def test_column_of_another_type_is_corruption() -> None:
    snapshot = build_snapshot(MANIFESTS, SPECS)
    wrong = snapshot.set_column(1, "version", pa.array(["a", "b", "c"]))

    with pytest.raises(CorruptionError, match="unexpected types"):
        normalise_snapshot(wrong, MemWalIndexDetails())


def _by_another_program(snapshot: pa.Table, path: Path) -> bytes:
    with LanceFileWriter(str(path), snapshot.schema) as writer:
        writer.write_batch(snapshot.to_batches()[0])
    return path.read_bytes()


def test_other_programs_read_our_file_with_lance(tmp_path: Path) -> None:
    snapshot = build_snapshot(MANIFESTS, SPECS)
    path = tmp_path / "index.lance"
    path.write_bytes(snapshot_to_bytes(snapshot))
    assert LanceFileReader(str(path)).read_all().to_table().equals(snapshot)


def test_file_of_another_program_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    snapshot = build_snapshot(MANIFESTS, SPECS)
    data = _by_another_program(snapshot, tmp_path / "index.lance")
    assert snapshot_from_bytes(data).equals(snapshot)


def test_pages_that_end_the_process_that_reads_them_are_corruption(tmp_path: Path) -> None:
    """Lance aborts on them: a flipped bit in a snapshot once ended whatever showed the status of the table."""
    data = _by_another_program(build_snapshot(MANIFESTS, SPECS), tmp_path / "index.lance")
    pages = read_file_footer(data, len(data)).columns_start
    for start in range(0, pages, pages // 2):
        forged = data[:start] + b"\xff" * 40 + data[start + 40 :]
        try:
            snapshot_from_bytes(forged)
        except CorruptionError:
            continue


def test_every_changed_byte_of_the_rows_in_our_file_is_corruption() -> None:
    data = snapshot_to_bytes(build_snapshot(MANIFESTS, SPECS))
    start = data.index(b"\xff\xff\xff\xff")  # An Arrow stream begins so.
    for at in range(start, start + 400, 7):
        with pytest.raises(CorruptionError):
            snapshot_from_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_null_in_place_of_a_value_is_corruption() -> None:
    snapshot = build_snapshot(MANIFESTS, SPECS)
    for name in ("region_id", "version", "flushed_generations"):
        at = snapshot.schema.get_field_index(name)
        kind = snapshot.schema.field(name).type
        forged = snapshot.set_column(at, pa.field(name, kind), pa.nulls(snapshot.num_rows, kind))
        with pytest.raises(CorruptionError):
            normalise_snapshot(forged, MemWalIndexDetails())
