"""The WAL: no holes above the replay pointer, one codec, not left alone unflushed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from memwal_core.maintenance.doctor.examination import Examination
from memwal_core.maintenance.doctor.findings import Finding, Severity
from memwal_core.manifest import RegionStatus
from memwal_core.storage.layout import LANCE_WAL_SUFFIX

_SHOWN = 20


def wal_has_no_holes(seen: Examination) -> Iterator[Finding]:
    """Entries above the replay pointer follow each other, up to the last that anybody saw."""
    for region, manifest in seen.readable():
        start = manifest.replay_after_wal_id
        # The end that somebody saw must exist; one beyond closes the last gap.
        end = max(manifest.wal_id_last_seen, max(region.wal_ids, default=0), start) + 1
        present = sorted(wal_id for wal_id in region.wal_ids if wal_id > start)
        gaps = [[low + 1, high - 1] for low, high in pairwise([start, *present, end]) if high > low + 1]
        if gaps:
            yield Finding(
                "wal-hole",
                Severity.CRITICAL,
                "WAL entries that must be replayed are missing",
                {
                    "missing": gaps[:_SHOWN],
                    "replay_after_wal_id": start,
                    "wal_id_last_seen": manifest.wal_id_last_seen,
                    "newest_entry": max(region.wal_ids, default=0),
                },
                "a restart of the writer stops at the hole, or loses every acknowledged row behind it",
                "do not start a writer; restore the entries from a backup or a versioned bucket",
                region.region_id,
            )


def wal_keeps_its_end(seen: Examination) -> Iterator[Finding]:
    """A WAL that was written keeps its newest entry, which tells a new writer where to fence."""
    for region, manifest in seen.readable():
        if manifest.replay_after_wal_id and not region.wal_ids:
            yield Finding(
                "wal-end-gone",
                Severity.WARNING,
                "a region has flushed WAL entries, but not even the newest is left",
                {"replay_after_wal_id": manifest.replay_after_wal_id, "writer_epoch": manifest.writer_epoch},
                "Lance's own writer begins again at position 1, so a stalled predecessor can lose what it acknowledged",
                "find out who deletes WAL entries; make sure that no old writer process lives before opening a new one",
                region.region_id,
            )


def wal_has_one_codec(seen: Examination) -> Iterator[Finding]:
    """A region's WAL entries are all of one codec."""
    for region in seen.regions:
        if len(region.wal) > 1:
            yield Finding(
                "wal-codecs-mixed",
                Severity.CRITICAL,
                "a region's WAL holds entries of two codecs",
                {suffix: [min(entries), max(entries)] for suffix, entries in sorted(region.wal.items())},
                "a writer of one codec does not see the other's entries: acknowledged rows are not replayed",
                "stop both writers; flush with the one whose entries are older, then decide for one codec",
                region.region_id,
            )


def lance_wal_is_sealed(seen: Examination) -> Iterator[Finding]:
    """A region whose WAL only our writer reads refuses Lance's own writers."""
    for region, manifest in seen.readable():
        if LANCE_WAL_SUFFIX in region.wal and manifest.status is not RegionStatus.SEALED:
            yield Finding(
                "region-not-sealed",
                Severity.CRITICAL,
                "a region of the lance codec is open to Lance's own writers",
                {"status": manifest.status.name, "entries": len(region.wal[LANCE_WAL_SUFFIX])},
                "a Lance writer that claims the region does not see its WAL and drops acknowledged rows",
                "keep Lance's writers away from this region; find out who changed its status",
                region.region_id,
            )


def wal_is_flushed(seen: Examination) -> Iterator[Finding]:
    """No entry waits for its flush for long: its writer is gone, or its flushes fail."""
    for region, manifest in seen.readable():
        waiting = {
            wal_id: at
            for wal_id, at in region.wal_ids.items()
            if wal_id > manifest.replay_after_wal_id and wal_id not in region.fences
        }
        if not waiting:
            continue
        age_s = (seen.now - min(waiting.values())).total_seconds()
        if age_s >= seen.wal_tail_age_s:
            yield Finding(
                "wal-tail-unflushed",
                Severity.WARNING,
                "WAL entries have been waiting for their flush for long",
                {
                    "entries": len(waiting),
                    "first": min(waiting),
                    "last": max(waiting),
                    "oldest_age_s": round(age_s),
                    "writer_epoch": manifest.writer_epoch,
                },
                "the rows are durable but invisible to the merge; each restart replays them",
                "start the region's writer and close it; if its flush fails, its log says why",
                region.region_id,
            )
