"""Whether a region seems to have a live writer, for table writers that must not fence it.

This is courtesy, not safety: the epoch keeps two writers apart whatever is found here. A writer that
closes leaves a record that it released the region. Without that record for the present epoch, a young
manifest version or WAL entry counts as a sign of life.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from memwal_core.errors import ConflictError, MemwalError, ObjectNotFoundError
from memwal_core.format.document import as_number, parse_document
from memwal_core.format.paths import WAL_SUFFIXES, manifest_path, wal_entry_path, writer_release_path
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.storage.limits import MAX_NOTE_BYTES
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import find_tail

_log = logging.getLogger(__name__)


_REMEMBERED_RANGES = 64
"""Ranges of released epochs in a record; between them lie epochs that were not released."""

MOST_SKEW_S = 60.0
"""Clocks of a store and its clients differ by less."""


@dataclass(frozen=True, slots=True)
class Releases:
    """Which epochs of a region their writers released.

    Attributes:
        newest: The last one; 0 = none.
        ranges: First and last epoch of each run, ascending; old ranges may be forgotten.
    """

    newest: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    def with_epoch(self, epoch: int) -> Releases:
        """Return the record with one more epoch, which is above all that it has."""
        kept = self.ranges
        if kept and kept[-1][1] == epoch - 1:
            return Releases(epoch, (*kept[:-1], (kept[-1][0], epoch)))
        return Releases(epoch, (*kept, (epoch, epoch))[-_REMEMBERED_RANGES:])

    def missing(self, first: int, last: int) -> int:
        """Count the epochs from first to last, both included, that their writers did not release."""
        given = sum(max(0, min(end, last) - max(begin, first) + 1) for begin, end in self.ranges)
        return max(0, last - first + 1) - given


def note_release(store: ObjectStore, region_id: RegionId, epoch: int, is_owner: Callable[[], bool]) -> None:
    """Record that the writer of an epoch released its region; a failure only delays the next writer.

    ``is_owner`` tells whether the epoch is still the region's: a writer that was fenced without noticing
    has nothing to release, and records nothing.
    """
    try:
        if not is_owner():
            return
        known = read_releases(store, region_id)
        if known.newest < epoch:
            after = known.with_epoch(epoch)
            document = {"released_epoch": after.newest, "released": after.ranges}
            store.put(writer_release_path(region_id), json.dumps(document).encode())
    except MemwalError as error:
        _log.info("release of the region not noted [region_id=%s, error=%s]", region_id, error)


def is_ahead(moment: datetime | None, now: datetime) -> bool:
    """Return whether a time cannot be right, or this clock is not: neither tells an age then."""
    return moment is not None and (moment - now).total_seconds() > MOST_SKEW_S


def require_no_live_writer(store: ObjectStore, manifest: RegionManifest, now: datetime, quiet_s: float) -> None:
    """Refuse with ``ConflictError`` if the region seems to have a live writer.

    ``now`` (wall time, UTC) is compared with the store's modification times; after ``quiet_s`` seconds without
    a sign of life a writer counts as dead.
    """
    if manifest.writer_epoch == 0 or read_releases(store, manifest.region_id).newest == manifest.writer_epoch:
        return
    last_sign = last_sign_of_life(store, manifest)
    if last_sign is None or (now - last_sign).total_seconds() >= quiet_s:
        return
    patience = f"stop that writer, wait {quiet_s:.0f} s after its last write"
    if is_ahead(last_sign, now):
        ahead_s = (last_sign - now).total_seconds()
        patience = f"its last sign of life lies {ahead_s:.0f} s ahead, so a clock is or was wrong: stop that writer"
    raise ConflictError(
        "the region seems to have a live writer, and takeover is not allowed",
        remedy=f"{patience}, or open with takeover='fence'",
        region_id=str(manifest.region_id),
        writer_epoch=manifest.writer_epoch,
        last_sign_of_life=last_sign.isoformat(),
    )


def read_releases(store: ObjectStore, region_id: RegionId) -> Releases:
    """Return which epochs of a region were released; a missing or unreadable record names none."""
    try:
        document = parse_document(store.get(writer_release_path(region_id), MAX_NOTE_BYTES))
        newest = as_number(document["released_epoch"])
        ranges = tuple((as_number(first), as_number(last)) for first, last in document["released"])
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return Releases()
    return Releases(newest, ranges)


def tails(store: ObjectStore, manifest: RegionManifest) -> dict[str, int]:
    """Return a region's last WAL entry by the suffix of its format; the replay pointer where none follows."""
    known = manifest.replay_after_wal_id
    return {suffix: find_tail(store, manifest.region_id, suffix, known) for suffix in WAL_SUFFIXES}


def last_sign_of_life(store: ObjectStore, manifest: RegionManifest) -> datetime | None:
    """Return when a region's manifest or WAL last changed; None if neither exists any more."""
    paths = [manifest_path(manifest.region_id, manifest.version)]
    for suffix, tail in tails(store, manifest).items():
        if tail:
            paths.append(wal_entry_path(manifest.region_id, tail, suffix))
    found = (store.head(path) for path in paths)
    return max((info.modified for info in found if info is not None), default=None)
