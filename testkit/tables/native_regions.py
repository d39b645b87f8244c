"""Regions that pylance's own writer makes, and what its own reader shows of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance.mem_wal import LsmScanner, ShardSnapshot

from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.table import Table
from testkit.tables.people import PRIMARY_KEY_METADATA


@dataclass(frozen=True, slots=True)
class Put:
    """Rows written in one call.

    Attributes:
        rows: In the base schema.
    """

    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Delete:
    """Keys deleted in one call.

    Attributes:
        keys: The key columns.
    """

    keys: pa.Table


def make_table_divided_by(column: str, uri: str, fields: pa.Schema) -> Table:
    """Create an empty table with the key ``id`` that pylance divides by another column, as this project refuses to."""
    key = pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA)
    lance.write_dataset(pa.schema([key, *fields]).empty_table(), uri).initialize_mem_wal(identity_column=column)
    return Table.open(uri)


def native_region_id(number: int) -> RegionId:
    """Return a fixed region id, so that failures repeat."""
    return RegionId(uuid.UUID(int=(0xA11CE << 108) | (4 << 76) | (8 << 60) | number))


def write_native_generations(uri: str, region_id: RegionId, generations: Sequence[Sequence[Put | Delete]]) -> None:
    """Let pylance write generations into a region, each flushed before the next begins.

    Args:
        uri: A table with a MemWAL index.
        region_id: The region; created if missing.
        generations: The writes of each generation, in order.
    """
    for writes in generations:
        with lance.dataset(uri).mem_wal_writer(str(region_id), max_wal_flush_interval_ms=1) as writer:
            for write in writes:
                if isinstance(write, Put):
                    writer.put(write.rows)
                else:
                    writer.delete(write.keys)


def native_snapshots(manifests: Sequence[RegionManifest]) -> list[ShardSnapshot]:
    """Return what pylance's LSM planners want to know of regions."""
    snapshots = []
    for manifest in manifests:
        snapshot = ShardSnapshot(str(manifest.region_id)).with_current_generation(manifest.current_generation)
        for flushed in manifest.flushed_generations:
            snapshot = snapshot.with_sstable(flushed.generation, flushed.path)
        snapshots.append(snapshot)
    return snapshots


def native_scan(
    uri: str,
    manifests: Sequence[RegionManifest],
    columns: Sequence[str],
    key: str,
    options: Mapping[str, str] | None = None,
) -> pa.Table:
    """Return what pylance's LSM reader shows of the base table and all recorded generations.

    Args:
        uri: The table.
        manifests: Its regions.
        columns: Columns to return.
        key: Column to sort by.
        options: Storage options.
    """
    dataset = lance.dataset(uri, storage_options=dict(options) if options else None)
    scanner = LsmScanner.from_snapshots(dataset, native_snapshots(manifests))
    return scanner.project(list(columns)).to_table().select(list(columns)).sort_by(key)
