"""Flushed MemTables: recorded without holes, present, complete."""

from __future__ import annotations

from collections.abc import Iterator

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import parse_generation_directory
from memwal_core.jobs.findings import Finding, Severity
from memwal_core.observe.doctor.examination import Examination, ExaminedRegion

_SHOWN = 20


def generations_are_contiguous(seen: Examination) -> Iterator[Finding]:
    """Every generation between the merge progress and the current one is recorded.

    A failed flush that later ones overtook leaves a hole: its rows were acknowledged, the replay pointer is
    past them, and no flushed MemTable has them.
    """
    for region, manifest in seen.readable():
        recorded = {each.generation for each in manifest.flushed_generations}
        expected = range(seen.merged(region.region_id) + 1, manifest.current_generation)
        missing = [number for number in expected if number not in recorded]
        if missing:
            yield Finding(
                "generation-hole",
                Severity.CRITICAL,
                "a generation is neither merged nor recorded",
                {
                    "missing": missing[:_SHOWN],
                    "merged": seen.merged(region.region_id),
                    "current_generation": manifest.current_generation,
                    "recorded": sorted(recorded)[:_SHOWN],
                    "unrecorded_directories": _directories_of(region, missing),
                },
                "rows of the missing generation are lost once their WAL entries are deleted; merging stops here",
                "stop garbage collection of this region, keep its WAL, and find out which flush failed",
                region.region_id,
            )


def generations_exist(seen: Examination) -> Iterator[Finding]:
    """The directory of every recorded generation exists."""
    for region in seen.regions:
        for each in region.generations:
            if not each.exists:
                yield Finding(
                    "generation-missing",
                    Severity.CRITICAL,
                    "the directory of a recorded flushed MemTable is missing",
                    {
                        "subject": each.path,
                        "generation": each.generation,
                        "merged": seen.merged(region.region_id),
                    },
                    "its rows are lost unless they are merged, and readers of the region fail",
                    "restore the directory from a backup; do not write a manifest without the record",
                    region.region_id,
                )


def generations_open(seen: Examination) -> Iterator[Finding]:
    """Every recorded generation that exists opens as a dataset, and none of its data files is missing."""
    for region in seen.regions:
        for each in region.generations:
            if each.exists and (each.problem is not None or each.missing_files):
                yield Finding(
                    "generation-damaged",
                    Severity.CRITICAL,
                    "a recorded flushed MemTable cannot be read in full",
                    {
                        "subject": each.path,
                        "generation": each.generation,
                        "problem": each.problem,
                        "missing_files": list(each.missing_files[:_SHOWN]),
                        "merged": seen.merged(region.region_id),
                    },
                    "its rows are lost unless they are merged; merging stops here",
                    "restore the files from a backup or a versioned bucket, and stop garbage collection meanwhile",
                    region.region_id,
                )


def _directories_of(region: ExaminedRegion, generations: list[int]) -> list[str]:
    found = []
    for directory in region.directories:
        try:
            if parse_generation_directory(directory.name) in generations:
                found.append(directory.name)
        except InvalidRequestError:
            continue
    return found
