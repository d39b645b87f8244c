"""What a read touches, decided from a survey alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import TableState
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.paths import generation_path
from memwal_core.format.region_manifest.model import BASE_TABLE_GENERATION
from memwal_core.ids import RegionId
from memwal_core.reader.freshness import Freshness
from memwal_core.reader.plan.predicate import Box
from memwal_core.reader.plan.pruning import RegionPruner
from memwal_core.reader.plan.sources import GenerationSource, ObservedRegion, SourceKind
from memwal_core.reader.plan.survey import Survey
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.region.census import DamagedRegion

AddressOf = Callable[[str], str]
"""From a path relative to the table's root to its address."""


@dataclass(frozen=True, slots=True)
class RegionRead:
    """What to read of one region.

    Attributes:
        merged: Highest generation that the base version contains.
        generations: Everything newer, newest first.
        merged_generations: Flushed MemTables that are merged but still recorded, newest first. Scans skip them;
            searches may use their indexes where those of the base table lag behind.
    """

    manifest: RegionManifest
    merged: int
    generations: tuple[GenerationSource, ...]
    merged_generations: tuple[GenerationSource, ...] = ()

    @property
    def region_id(self) -> RegionId:
        """The region."""
        return self.manifest.region_id


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One read.

    Attributes:
        state: The base version, which counts as generation -1.
        regions: What to read of each region that may hold matching rows.
        damaged: Regions that cannot be read and may hold matching rows.
    """

    state: TableState
    regions: tuple[RegionRead, ...]
    pruned: tuple[RegionId, ...]
    freshness: Freshness
    damaged: tuple[DamagedRegion, ...] = ()

    def require_sound(self) -> ReadPlan:
        """Return the plan; refuse with ``DamagedError`` if a damaged region may hold matching rows."""
        for each in self.damaged:
            raise each.error
        return self

    @property
    def sources(self) -> tuple[tuple[RegionId | None, int], ...]:
        """All sources as (region, generation); the base table comes first, with None as its region."""
        newer = ((each.region_id, each.generation) for region in self.regions for each in region.generations)
        return ((None, BASE_TABLE_GENERATION), *newer)


def plan_read(survey: Survey, address_of: AddressOf, boxes: Sequence[Box] | None = None) -> ReadPlan:
    """Decide what to read.

    Args:
        survey: Where the rows are.
        address_of: Gives addresses.
        boxes: Bound the rows that a filter lets through; None means no filter.

    Returns:
        The plan. Call ``require_sound`` unless each damaged region is shown to hold nothing that is wanted.
    """
    state = survey.state
    details = state.details if state.details is not None else MemWalIndexDetails()
    kept, damaged = list(survey.regions), survey.damaged
    if boxes is not None:
        key = state.primary_key.columns
        lasting = pa.schema([field for field in state.schema if not key or field.name in key])
        pruner = RegionPruner(details.region_specs, lasting, state.field_ids, boxes)
        kept = [region for region in survey.regions if pruner.may_match(region.manifest)]
        damaged = tuple(each for each in damaged if each.identity is None or pruner.may_match(each.identity))
    ids = {region.manifest.region_id for region in kept}
    return ReadPlan(
        state=state,
        regions=tuple(_region(region, details, address_of) for region in kept),
        pruned=tuple(region.manifest.region_id for region in survey.regions if region.manifest.region_id not in ids),
        freshness=Freshness(
            asked=survey.asked,
            achieved=survey.achieved,
            base_version=state.version,
            taken=survey.taken,
            regions=len(kept),
            regions_in_memory=sum(region.in_memory for region in kept),
            is_time_travel=survey.is_time_travel,
            frozen=survey.frozen,
        ),
        damaged=damaged,
    )


def _region(region: ObservedRegion, details: MemWalIndexDetails, address_of: AddressOf) -> RegionRead:
    manifest = region.manifest
    merged = details.merged_generation(manifest.region_id)
    flushed = [_flushed(manifest.region_id, each, address_of) for each in manifest.flushed_generations]
    unflushed = [each for each in region.unflushed if each.generation > merged]
    newest_first = sorted([*flushed, *unflushed], key=lambda each: each.generation, reverse=True)
    return RegionRead(
        manifest=manifest,
        merged=merged,
        generations=tuple(each for each in newest_first if each.generation > merged),
        merged_generations=tuple(each for each in newest_first if each.generation <= merged),
    )


def _flushed(region_id: RegionId, recorded: FlushedGeneration, address_of: AddressOf) -> GenerationSource:
    directory = generation_path(region_id, recorded.path)
    return GenerationSource(
        region_id,
        recorded.generation,
        SourceKind.FLUSHED,
        path=address_of(directory),
        directory=directory,
        size_bytes=recorded.in_memory_bytes,
    )
