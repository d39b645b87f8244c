"""Region snapshots of a base table: publishing one, and reading that of a version."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable
from memwal_core.clock import at_millis, unix_millis
from memwal_core.errors import ConflictError, CorruptionError, InvalidRequestError, ObjectNotFoundError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.rules import is_inline
from memwal_core.format.memwal_index.snapshot import normalise_snapshot, snapshot_manifests, snapshot_schema
from memwal_core.format.memwal_index.snapshot_file import snapshot_from_bytes, snapshot_to_bytes
from memwal_core.format.paths import region_snapshot_path
from memwal_core.format.region_manifest.model import RegionManifest
from memwal_core.ids import RegionId
from memwal_core.region.listing import list_regions, unchanged_since
from memwal_core.storage.limits import MAX_SNAPSHOT_BYTES

_log = logging.getLogger(__name__)


class SnapshotOvertakenError(ConflictError):
    """Another process published a region snapshot meanwhile, perhaps a newer one. Read the table, then decide."""


def publish_snapshot(
    table: BaseTable, snapshot: pa.Table, *, taken: datetime, read: TableState | None = None
) -> TableState:
    """Store a region snapshot and record it in the MemWAL index, which otherwise stays as it is.

    Up to ``settings.index.inline_snapshot_threshold`` regions it goes into the table manifest; above that,
    into a file of its own that is written first. Each publication gives the index a new id, so that
    no version ever sees another version's file.

    Args:
        table: The table.
        snapshot: As ``build_snapshot`` returns it, one row per region.
        taken: Before the first region manifest was read, timezone UTC.
        read: The version whose snapshot is replaced; a snapshot published after it stays. Any
            snapshot is replaced if None.

    Raises:
        SnapshotOvertakenError: The snapshot is no longer that of ``read``.
        ConflictError: Other commits came first in every attempt; try later.
        CommitUnknownError: Read the table before trying again.
    """
    data = snapshot_to_bytes(snapshot)
    inline = is_inline(snapshot.num_rows, threshold=table.settings.index.inline_snapshot_threshold)
    index_id = uuid.UUID(bytes=table.ids.commit_id(), version=4)

    def change(details: MemWalIndexDetails) -> MemWalIndexDetails:
        if read is not None and not _has_snapshot_of(details, read.require_details()):
            raise SnapshotOvertakenError(
                "another process published a region snapshot meanwhile",
                remedy="read the regions again and compare",
                table=table.uri,
                read_version=read.version,
            )
        return replace(
            details,
            snapshot_ts_millis=unix_millis(taken),
            num_regions=snapshot.num_rows,
            inline_snapshots=data if inline else None,
        )

    if not inline:
        table.store.put_if_absent(region_snapshot_path(index_id), data)
    try:
        return table.update_details(change, read=read, index_id=index_id, message="publish a region snapshot")
    except (ConflictError, InvalidRequestError):
        # Certain: no version needs the file. After any other error one may.
        if not inline:
            table.store.delete(region_snapshot_path(index_id))
        raise


def _has_snapshot_of(one: MemWalIndexDetails, other: MemWalIndexDetails) -> bool:
    return (one.snapshot_ts_millis, one.num_regions, one.inline_snapshots) == (
        other.snapshot_ts_millis,
        other.num_regions,
        other.inline_snapshots,
    )


def read_snapshot(table: TableReader, state: TableState) -> pa.Table | None:
    """Return the region snapshot of a version in the columns of ``snapshot_schema``, or None if it has none.

    There is none before the first publication, and no external one after pylance itself has committed
    to the index, because that gives the index another id. Readers then list the region manifests,
    which are the truth in any case. ``CorruptionError``: the stored snapshot cannot be used.
    """
    details = state.require_details()
    if details.inline_snapshots:
        found = snapshot_from_bytes(details.inline_snapshots)
    elif details.num_regions == 0:
        return snapshot_schema(details.region_specs).empty_table() if details.snapshot_ts_millis else None
    else:
        external = _external(table, state)
        if external is None:
            return None
        found = external
    if found.num_rows != details.num_regions:
        raise CorruptionError(
            "the region snapshot does not have as many rows as the index announces",
            remedy="read with consistency `latest`, which reads the region manifests instead",
            expected=details.num_regions,
            found=found.num_rows,
        )
    return normalise_snapshot(found, details)


def named_regions(table: TableReader, state: TableState) -> tuple[Collection[RegionId], tuple[RegionManifest, ...]]:
    """Return the regions that must exist: those with merge progress, and the rows of the region snapshot.

    A snapshot that cannot be read names none; readers do without it.
    """
    details = state.details
    if details is None:
        return (), ()
    try:
        found = read_snapshot(table, state) if details.num_regions else None
    except CorruptionError as error:
        _log.warning("region snapshot cannot be read and names no region [table=%s]: %s", table.uri, error)
        found = None
    return details.merged_generations.keys(), () if found is None else snapshot_manifests(found)


def unchanged_regions(table: TableReader, state: TableState) -> dict[RegionId, RegionManifest]:
    """Return the regions that are as the region snapshot of a version says, see ``unchanged_since``.

    One of which a later version was seen before went back, and is not among them. Costs a listing of everything below
    ``_mem_wal/``, given up where it is too long; nothing without a snapshot.
    """
    rows = named_regions(table, state)[1]
    listed = list_regions(table.store) if rows else None
    if state.details is None or listed is None:
        return {}
    seen = table.remembered()
    believed = (each for each in rows if each.version >= seen.get(each.region_id, 0))
    return unchanged_since(believed, at_millis(state.details.snapshot_ts_millis), listed)


def regions_at_rest(table: TableReader, state: TableState) -> dict[RegionId, RegionManifest]:
    """Return the unchanged regions whose generations are all merged; what a row lacks is asked of no others."""
    progress = state.details
    return {
        region_id: row
        for region_id, row in unchanged_regions(table, state).items()
        if progress is not None
        and all(each.generation <= progress.merged_generation(region_id) for each in row.flushed_generations)
    }


def _external(table: TableReader, state: TableState) -> pa.Table | None:
    if state.entry is None:
        return None
    try:
        data = table.store.get(region_snapshot_path(state.entry.index_id), MAX_SNAPSHOT_BYTES)
    except ObjectNotFoundError:
        _log.info("the index has no snapshot file [table=%s, version=%d]", table.uri, state.version)
        return None
    return snapshot_from_bytes(data)
