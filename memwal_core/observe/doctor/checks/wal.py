"""The WAL: no holes above the replay pointer, one codec, closed to writers that cannot read it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from memwal_core.format.paths import LANCE_WAL_SUFFIX
from memwal_core.observe.doctor.examination import Examination, ExaminedRegion
from memwal_core.observe.findings import Finding, Severity
from memwal_core.region import RegionManifest, RegionStatus

_SHOWN = 20
_RUNBOOK = "docs/runbooks/wal-lag.md"


def wal_has_no_holes(seen: Examination) -> Iterator[Finding]:
    """Entries above the replay pointer follow each other, up to the last one that a writer or the listing saw."""
    for region, manifest in seen.readable():
        start = manifest.replay_after_wal_id
        gaps = _listed_gaps(region, manifest) if seen.deep else _probed_gaps(region)
        if gaps:
            yield Finding(
                "wal-hole",
                Severity.CRITICAL,
                "WAL entries that must be replayed are missing",
                {
                    "missing": gaps[:_SHOWN],
                    "replay_after_wal_id": start,
                    "wal_id_last_seen": manifest.wal_id_last_seen,
                    "newest_entry": max(region.wal_ids, default=0) if seen.deep else gaps[-1][-1] + 1,
                },
                "no writer and no flush takes the region on; acknowledged rows of these entries are lost",
                "restore the entries from a backup or a versioned bucket; only if there is none, give up what is gone "
                "with `memwal repair`",
                region.region_id,
                runbook=_RUNBOOK,
            )


def _listed_gaps(region: ExaminedRegion, manifest: RegionManifest) -> list[list[int]]:
    start = manifest.replay_after_wal_id
    # The last entry seen must exist; the position after it closes the last gap.
    end = max(manifest.wal_id_last_seen, max(region.wal_ids, default=0), start) + 1
    present = sorted(wal_id for wal_id in region.wal_ids if wal_id > start)
    return [[low + 1, high - 1] for low, high in pairwise([start, *present, end]) if high > low + 1]


def _probed_gaps(region: ExaminedRegion) -> list[list[int]]:
    tail = region.tail
    return [[tail.wal_id + 1, tail.wal_id + 1]] if tail is not None and tail.has_hole else []


def wal_entries_can_be_read(seen: Examination) -> Iterator[Finding]:
    """Every entry above the replay pointer can be replayed: no flushed MemTable has its rows."""
    for region, manifest in seen.listed():
        if region.damaged_entries:
            shown = list(region.damaged_entries.items())[:_SHOWN]
            yield Finding(
                "wal-entry-damaged",
                Severity.CRITICAL,
                "WAL entries that must be replayed cannot be read",
                {
                    "entries": {str(wal_id): cause for wal_id, cause in shown},
                    "damaged": len(region.damaged_entries),
                    "replay_after_wal_id": manifest.replay_after_wal_id,
                },
                "no writer and no flush takes the region on; acknowledged rows of these entries are lost",
                "restore the entries from a backup or a versioned bucket; only if there is none, give up what is gone "
                "with `memwal repair`",
                region.region_id,
                runbook=_RUNBOOK,
            )


def wal_keeps_its_end(seen: Examination) -> Iterator[Finding]:
    """A WAL that was written keeps its newest entry, which tells a new writer where to fence."""
    for region, manifest in seen.listed():
        if manifest.replay_after_wal_id and not region.wal_ids:
            yield Finding(
                "wal-end-gone",
                Severity.WARNING,
                "the WAL of a region that was flushed is empty; not even its newest entry is left",
                {"replay_after_wal_id": manifest.replay_after_wal_id, "writer_epoch": manifest.writer_epoch},
                "Lance's own writer begins again at position 1, so a stalled predecessor can lose what it acknowledged",
                "find out which program deletes WAL entries, and stop all old writers before opening a new one",
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
                "stop both writers, flush with the one whose entries are older, then keep to one codec",
                region.region_id,
            )


def lance_wal_is_sealed(seen: Examination) -> Iterator[Finding]:
    """A region whose WAL only our writer reads refuses Lance's own writers."""
    for region, manifest in seen.readable():
        if LANCE_WAL_SUFFIX in region.wal and manifest.status is not RegionStatus.SEALED:
            yield Finding(
                "region-not-sealed",
                Severity.CRITICAL,
                "a region of the lance codec is not sealed against Lance's own writers",
                {"status": manifest.status.name, "entries": len(region.wal[LANCE_WAL_SUFFIX])},
                "a Lance writer that claims the region does not see its WAL and drops acknowledged rows",
                "keep Lance's writers away from this region, and find out which program changed its status",
                region.region_id,
            )
