"""Bytes that nothing records, and names that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator

from memwal_core.maintenance.doctor.examination import Examination
from memwal_core.maintenance.doctor.findings import Finding, Severity


def bytes_are_recorded(seen: Examination) -> Iterator[Finding]:
    """Directories in a region are recorded, or young enough to belong to a flush or drain under way."""
    for region, manifest in seen.readable():
        recorded = {each.path for each in manifest.flushed_generations}
        orphans = [
            each
            for each in region.directories
            if each.name not in recorded and (seen.now - each.newest).total_seconds() >= seen.orphan_age_s
        ]
        size = sum(each.size_bytes for each in orphans)
        if orphans:
            share = size / region.size_bytes if region.size_bytes else 1.0
            yield Finding(
                "orphan-bytes",
                Severity.WARNING if share > seen.orphan_share else Severity.INFO,
                "a region has directories that its manifest does not record",
                {
                    "directories": [each.name for each in orphans],
                    "bytes": size,
                    "share": round(share, 3),
                },
                "none for rows; the space is lost until they are collected",
                "run `memwal gc`",
                region.region_id,
            )


def names_are_known(seen: Examination) -> Iterator[Finding]:
    """Everything below ``_mem_wal/`` is a region or the project's own."""
    if seen.strangers:
        yield Finding(
            "unknown-directory",
            Severity.INFO,
            "names below _mem_wal are neither regions nor known",
            {"names": list(seen.strangers)},
            "none; every job ignores them",
            "find out who put them there",
        )


def jobs_make_progress(seen: Examination) -> Iterator[Finding]:
    """No job fails again and again."""
    for key, verdict in sorted(seen.jobs.items()):
        if verdict.retry_at is not None:
            yield Finding(
                "job-failing",
                Severity.WARNING,
                "a job keeps failing and pauses between its attempts",
                {"subject": str(key), **verdict.to_dict()},
                "its work piles up",
                "look at `memwal history` for the error, and at `memwal why` for the region",
            )
