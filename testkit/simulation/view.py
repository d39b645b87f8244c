"""What a reader must see, read in the plainest way possible, without the code under test's cleverness."""

from __future__ import annotations

import lance
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, generation_path
from memwal_core.ids import IdSource
from memwal_core.memtable import TOMBSTONE_COLUMN
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.wal import codec_for_suffix, find_tail


class DuplicateKeyError(AssertionError):
    """A key occurs twice where it may occur once."""


def lsm_view(table: BaseTable, version: int | None = None) -> dict[int, str]:
    """Return key -> value of base table, unmerged flushed MemTables and durable WAL tail.

    Args:
        table: Over a store that does not fail.
        version: Base version to begin with; the newest if None.

    Raises:
        DuplicateKeyError: The base table or a flushed MemTable holds a key twice.
    """
    manifests = ManifestStore(table.store, IdSource())
    regions = manifests.load_many(manifests.region_ids(), 1)
    state = table.state(version)
    view: dict[int, str] = {}
    options = dict(table.storage_options) or None
    view |= base_rows(table, state.version)
    for manifest in regions:
        merged = state.details.merged_generation(manifest.region_id) if state.details is not None else 0
        for flushed in manifest.flushed_generations:
            if flushed.generation > merged:
                uri = table.store.uri_of(generation_path(manifest.region_id, flushed.path))
                rows = lance.dataset(uri, storage_options=options).to_table()
                _apply(view, rows, f"{manifest.region_id} generation {flushed.generation}")
        _replay(view, table, manifest)
    return view


def base_rows(table: BaseTable, version: int) -> dict[int, str]:
    """Return key -> value of the base table alone.

    Raises:
        DuplicateKeyError: It holds a key twice.
    """
    rows: dict[int, str] = {}
    _apply(rows, table.dataset(version).to_table(columns=["id", "name"]), "base table")
    return rows


def _replay(view: dict[int, str], table: BaseTable, manifest: RegionManifest) -> None:
    first = manifest.replay_after_wal_id + 1
    suffix = LANCE_WAL_SUFFIX if manifest.status is RegionStatus.SEALED else ARROW_WAL_SUFFIX
    codec = codec_for_suffix(suffix, {})
    tail = find_tail(table.store, manifest.region_id, suffix, manifest.replay_after_wal_id)
    for wal_id in range(first, tail + 1):
        rows = codec.read(table.store, manifest.region_id, wal_id).rows
        for row in range(rows.num_rows):
            _apply(view, rows.slice(row, 1), "WAL entry")


def _apply(view: dict[int, str], rows: pa.Table, source: str) -> None:
    ids = rows.column("id").to_pylist()
    if len(set(ids)) != len(ids):
        raise DuplicateKeyError(f"{source}: {sorted(key for key in set(ids) if ids.count(key) > 1)}")
    names = rows.column("name").to_pylist()
    deleted = rows.column(TOMBSTONE_COLUMN).to_pylist() if TOMBSTONE_COLUMN in rows.schema.names else [False] * len(ids)
    for key, name, is_deleted in zip(ids, names, deleted, strict=True):
        if is_deleted:
            view.pop(key, None)
        else:
            view[key] = name
