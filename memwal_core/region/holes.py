"""Which generations are not recorded, as spans: a manifest may name any number as its current generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memwal_core.format.region_manifest.model import RegionManifest


def holes(recorded: Iterable[int], first: int, end: int) -> Iterator[range]:
    """Yield the spans of the numbers from ``first`` up to, not including, ``end`` that are not recorded, ascending.

    The work grows with what is recorded, never with the distance of the numbers.
    """
    expected = first
    for number in sorted(each for each in set(recorded) if first <= each < end):
        if number > expected:
            yield range(expected, number)
        expected = number + 1
    if expected < end:
        yield range(expected, end)


def missing_generations(manifest: RegionManifest, merged: int) -> Iterator[range]:
    """Yield the spans of generations that are neither merged nor recorded, ascending; no reader finds their rows."""
    recorded = (each.generation for each in manifest.flushed_generations)
    return holes(recorded, merged + 1, manifest.current_generation)
