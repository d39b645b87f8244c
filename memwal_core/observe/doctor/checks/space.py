"""Bytes that no manifest records, and unknown names."""

from __future__ import annotations

from collections.abc import Iterator

from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.findings import Finding, Severity


def bytes_are_recorded(seen: Examination) -> Iterator[Finding]:
    """Directories in a region are recorded, or young enough to belong to a flush or drain under way."""
    for region, manifest in seen.readable():
        recorded = {each.path for each in manifest.flushed_generations}
        orphans = [
            each
            for each in region.directories
            if each.name not in recorded
            and each.newest is not None
            and (seen.now - each.newest).total_seconds() >= seen.orphan_age_s
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
                "no rows are at risk; the space is lost until the directories are collected",
                "run `memwal gc`",
                region.region_id,
            )


def names_are_known(seen: Examination) -> Iterator[Finding]:
    """Everything below ``_mem_wal/`` is a region or the project's own."""
    if seen.strangers:
        yield Finding(
            "unknown-directory",
            Severity.INFO,
            "unknown names lie below _mem_wal",
            {"names": list(seen.strangers)},
            "none; every job ignores them",
            "find out which program created them",
        )
