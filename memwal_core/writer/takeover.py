"""Whether a region seems to have a live writer, for those who must not fence one.

This is courtesy, not safety: the epoch keeps two writers apart whatever is found here. A writer that
closes leaves a note that it gave the region back. Without that note for the present epoch, a young
manifest version or WAL entry is taken for a sign of life.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from enum import StrEnum

from memwal_core.errors import ConflictError, ObjectNotFoundError, UnavailableError
from memwal_core.ids import RegionId
from memwal_core.manifest import RegionManifest
from memwal_core.storage.layout import WAL_SUFFIXES, manifest_path, wal_entry_path, writer_release_path
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import find_tail

_log = logging.getLogger(__name__)


class Takeover(StrEnum):
    """What to do about a writer that owns a wanted region."""

    FAIL = "fail"
    """Leave it alone and raise."""
    FENCE = "fence"
    """Claim the region, which stops it."""


def note_release(store: ObjectStore, region_id: RegionId, epoch: int) -> None:
    """Note that the writer of an epoch gave its region back; a failure only delays the next writer."""
    try:
        store.put(writer_release_path(region_id), json.dumps({"released_epoch": epoch}).encode())
    except UnavailableError as error:
        _log.info("release of the region not noted [region_id=%s, error=%s]", region_id, error)


def require_no_live_writer(store: ObjectStore, manifest: RegionManifest, now: datetime, quiet_s: float) -> None:
    """Return if nobody seems to write a region.

    Args:
        store: The table's store.
        manifest: The region's newest manifest.
        now: Wall time, timezone UTC; compared with the store's modification times.
        quiet_s: Seconds without a sign of life after which a writer counts as dead.

    Raises:
        ConflictError: The region seems to have a writer. Wait, or take it over on purpose.
        UnavailableError: The store does not answer.
    """
    if manifest.writer_epoch == 0 or _released_epoch(store, manifest.region_id) == manifest.writer_epoch:
        return
    last_sign = last_sign_of_life(store, manifest)
    if last_sign is None or (now - last_sign).total_seconds() >= quiet_s:
        return
    raise ConflictError(
        "the region seems to have a live writer, and takeover is not allowed",
        remedy=f"stop that writer, wait {quiet_s:.0f} s after its last write, or open with takeover='fence'",
        region_id=str(manifest.region_id),
        writer_epoch=manifest.writer_epoch,
        last_sign_of_life=last_sign.isoformat(),
    )


def _released_epoch(store: ObjectStore, region_id: RegionId) -> int | None:
    try:
        found = json.loads(store.get(writer_release_path(region_id)))["released_epoch"]
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def last_sign_of_life(store: ObjectStore, manifest: RegionManifest) -> datetime | None:
    """Return when a region's manifest or WAL last changed; None if nothing is there any more."""
    paths = [manifest_path(manifest.region_id, manifest.version)]
    known = manifest.replay_after_wal_id
    for suffix in WAL_SUFFIXES:
        tail = find_tail(store, manifest.region_id, suffix, known)
        if tail:
            paths.append(wal_entry_path(manifest.region_id, tail, suffix))
    found = (store.head(path) for path in paths)
    return max((info.modified for info in found if info is not None), default=None)
