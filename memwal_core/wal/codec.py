"""Which codec a WAL has: fixed when the region is created, recognised by the suffix of its files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.format.region_manifest.model import RegionManifest, RegionStatus
from memwal_core.ids import RegionId
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal.arrow_codec import ArrowCodec, is_arrow_fence
from memwal_core.wal.entry import WalCodec
from memwal_core.wal.lance_codec import LanceCodec, is_lance_fence
from memwal_core.wal.replay import refuse_hole


def codec_for_suffix(
    suffix: str, column_ids: Mapping[str, tuple[int, ...]], table_metadata: Mapping[bytes, bytes] | None = None
) -> WalCodec:
    """Return the codec of a WAL file suffix (with the dot).

    ``column_ids`` maps columns of the base table to their field id and those of all fields inside, ``table_metadata``
    is what its schema has; the codec writes them and never reads them.
    """
    if suffix == LANCE_WAL_SUFFIX:
        return LanceCodec(column_ids)
    if suffix == ARROW_WAL_SUFFIX:
        return ArrowCodec(column_ids, table_metadata)
    raise InvalidRequestError(
        "this version has no WAL codec for this file suffix",
        remedy="use the writer that created the region",
        suffix=suffix,
        known=(LANCE_WAL_SUFFIX, ARROW_WAL_SUFFIX),
    )


def codec_of_region(
    manifest: RegionManifest,
    column_ids: Mapping[str, tuple[int, ...]],
    table_metadata: Mapping[bytes, bytes] | None = None,
) -> WalCodec:
    """Return the codec that a region was created with.

    A SEALED region refuses pylance's writer, so its WAL is ours alone; in an ACTIVE one both take turns.
    """
    is_ours = manifest.status is RegionStatus.SEALED
    return codec_for_suffix(LANCE_WAL_SUFFIX if is_ours else ARROW_WAL_SUFFIX, column_ids, table_metadata)


def is_fence(store: ObjectStore, region_id: RegionId, suffix: str, wal_id: int, size_bytes: int) -> bool:
    """Tell whether an entry of this size only marks a claim, reading little; unreadable ones count as rows."""
    if suffix == LANCE_WAL_SUFFIX:
        return is_lance_fence(store, region_id, wal_id, size_bytes)
    return is_arrow_fence(store, region_id, wal_id)


def rows_wait_since(store: ObjectStore, manifest: RegionManifest) -> datetime | None:
    """Return when the first entry with rows after the replay pointer was written; None if there is none.

    Raises:
        DamagedError: The WAL has a hole there.
    """
    suffix, wal_id = codec_of_region(manifest, {}).suffix, manifest.replay_after_wal_id + 1
    while (entry := store.head(wal_entry_path(manifest.region_id, wal_id, suffix))) is not None:
        if not is_fence(store, manifest.region_id, suffix, wal_id, entry.size_bytes):
            return entry.modified
        wal_id += 1
    refuse_hole(store, manifest.region_id, suffix, wal_id - 1, manifest.wal_id_last_seen)
    return None
