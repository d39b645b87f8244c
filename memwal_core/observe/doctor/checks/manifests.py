"""Region manifests: readable, numbered without holes, never going back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.findings import Finding, Severity

_RUNBOOK = "stop the region's writer and follow docs/runbooks/corrupt-region-manifest.md"
_NEVER_FALL = ("writer_epoch", "replay_after_wal_id", "current_generation")


def manifests_are_readable(seen: Examination) -> Iterator[Finding]:
    """The newest manifest of each region can be read."""
    for region in seen.regions:
        if region.problem is not None:
            yield Finding(
                "manifest-unreadable",
                Severity.CRITICAL,
                "the newest manifest of a region cannot be read",
                {"problem": region.problem, "versions": list(region.versions[-5:])},
                "the region can be neither written nor merged; its rows are still there",
                _RUNBOOK,
                region.region_id,
            )


def manifests_exist(seen: Examination) -> Iterator[Finding]:
    """A region that holds rows has a manifest."""
    for region in seen.regions:
        rows_somewhere = bool(region.wal_ids or region.directories)
        if region.manifest is None and region.problem is None and rows_somewhere:
            yield Finding(
                "manifest-missing",
                Severity.CRITICAL,
                "a region has WAL entries or flushed MemTables but no manifest",
                {"wal_entries": len(region.wal_ids), "directories": [each.name for each in region.directories]},
                "these rows are neither read nor merged",
                _RUNBOOK,
                region.region_id,
            )


def manifest_versions_are_contiguous(seen: Examination) -> Iterator[Finding]:
    """The manifest versions that exist follow each other, because they are only deleted from below.

    A search begins at the hint and ends at the first version that is missing, so a hole below both does no harm.
    """
    for region in seen.regions:
        gaps = [[low + 1, high - 1] for low, high in pairwise(region.versions) if high != low + 1]
        if not gaps:
            continue
        what = "versions in the middle of a region manifest's history are missing"
        evidence = {"missing": gaps, "oldest": region.versions[0], "newest": region.versions[-1]}
        found = region.manifest.version if region.manifest is not None else 0
        if found > gaps[-1][1]:
            yield Finding(
                "manifest-version-gap",
                Severity.WARNING,
                what,
                evidence,
                "none while the version hint stands: without it, or with an older one, an old state is the newest",
                "leave version_hint.json as it is; the hole is gone once `memwal gc` has collected what is below it",
                region.region_id,
            )
        else:
            yield Finding(
                "manifest-version-hole",
                Severity.CRITICAL,
                what,
                {**evidence, "found": found},
                "a writer that starts below the hole takes an old state for the newest: two writers may hold one epoch",
                _RUNBOOK,
                region.region_id,
            )


def manifests_never_go_back(seen: Examination) -> Iterator[Finding]:
    """Epoch, replay pointer and current generation only grow from version to version."""
    for region in seen.regions:
        for old, new in pairwise(region.history):
            fallen = {
                name: [getattr(old, name), getattr(new, name)]
                for name in _NEVER_FALL
                if getattr(new, name) < getattr(old, name)
            }
            if fallen:
                yield Finding(
                    "manifest-went-back",
                    Severity.CRITICAL,
                    "a region manifest went back to an earlier state",
                    {"subject": f"{old.version}-{new.version}", **fallen},
                    "epochs or generations may be assigned twice, and flushed rows may be forgotten",
                    _RUNBOOK,
                    region.region_id,
                )
