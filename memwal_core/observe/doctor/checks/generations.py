"""Flushed MemTables: recorded without holes, present, complete."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import parse_generation_directory
from memwal_core.observe.doctor.examination import Examination, ExaminedRegion
from memwal_core.observe.findings import Finding, Severity
from memwal_core.region.holes import missing_generations

_SHOWN = 20


def generations_are_contiguous(seen: Examination) -> Iterator[Finding]:
    """Every generation between the merge progress and the current one is recorded.

    A failed flush that later ones overtook leaves a hole: its rows were acknowledged, the replay pointer is
    past them, and no flushed MemTable has them.
    """
    for region, manifest in seen.readable():
        recorded = {each.generation for each in manifest.flushed_generations}
        missing = list(missing_generations(manifest, seen.merged(region.region_id)))
        if missing:
            yield Finding(
                "generation-hole",
                Severity.CRITICAL,
                "a generation is neither merged nor recorded",
                {
                    "missing": list(islice(chain(*missing), _SHOWN)),
                    "merged": seen.merged(region.region_id),
                    "current_generation": manifest.current_generation,
                    "recorded": sorted(recorded)[:_SHOWN],
                    "unrecorded_directories": _directories_of(region, missing),
                },
                "rows of the missing generation are lost once their WAL entries are deleted; merging stops here",
                "rebuild it from its WAL with `memwal repair`; start with a dry run",
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
                    "rebuild it from its WAL with `memwal repair`, or restore the directory from a copy",
                    region.region_id,
                )


def generations_open(seen: Examination) -> Iterator[Finding]:
    """Every recorded generation that exists opens as a dataset, and all of its files can be read."""
    for region in seen.regions:
        for each in region.generations:
            if each.exists and (each.problem is not None or each.damage):
                yield Finding(
                    "generation-damaged",
                    Severity.CRITICAL,
                    "a recorded flushed MemTable cannot be read in full",
                    {
                        "subject": each.path,
                        "generation": each.generation,
                        "problem": each.problem,
                        "files": {file.path: file.cause for file in each.damage[:_SHOWN]},
                        "merged": seen.merged(region.region_id),
                    },
                    "its rows are lost unless they are merged; merging stops here",
                    "rebuild it with `memwal repair`, or restore the files from a copy",
                    region.region_id,
                )


def generations_can_be_merged(seen: Examination) -> Iterator[Finding]:
    """A merge can take the columns of every generation that waits for one."""
    for region in seen.regions:
        for each in region.generations:
            if each.unmergeable:
                yield Finding(
                    "generation-unmergeable",
                    Severity.CRITICAL,
                    "a flushed MemTable has other columns than the base table, and no merge can take it",
                    {"subject": each.path, "generation": each.generation, "problem": each.unmergeable},
                    "its rows and those of later generations never reach the base table",
                    "change the base table's columns so that they fit it again, merge, and then change them back",
                    region.region_id,
                )


def generations_know_their_address(seen: Examination) -> Iterator[Finding]:
    """Flushed MemTables name WAL entries at the address at which the table lies."""
    moved = {
        each.path: each.recorded_address
        for region in seen.regions
        for each in region.generations
        if each.recorded_address
    }
    if moved:
        yield Finding(
            "table-moved",
            Severity.WARNING,
            "the table was moved or copied: flushed MemTables name the WAL of another address",
            {"generations": len(moved), "addresses": sorted(set(moved.values()))[:_SHOWN]},
            "Lance's own readers read the other table's WAL, or nothing; this project's read the right one",
            "let the flushed MemTables name this address",
        )


def _directories_of(region: ExaminedRegion, missing: list[range]) -> list[str]:
    found = []
    for directory in region.directories:
        try:
            generation = parse_generation_directory(directory.name)
            if any(generation in span for span in missing):
                found.append(directory.name)
        except InvalidRequestError:
            continue
    return found
