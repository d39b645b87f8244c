"""The state of a table and its regions, for people and for machines. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from memwal_core.base_table import BaseTable, TableState, named_regions, regions_at_rest
from memwal_core.coordination.freeze import Freeze
from memwal_core.errors import CorruptionError
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, WAL_SUFFIXES, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.observe.lifecycle import GenerationSpan, GenerationState, generation_states
from memwal_core.observe.region_values import values_by_rows
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.region.census import CensusTaker
from memwal_core.region.quarantine import QuarantineStore
from memwal_core.region.spec import MANUAL_SPEC_ID, RegionSpec, RegionValue
from memwal_core.region.spec.describe import UNSHARDED, describe_field
from memwal_core.region.values import known_value
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import ends_in_hole

TAIL_PROBES = 32
"""How many WAL entries are probed after the last known one; more are reported as "at least"."""


@dataclass(frozen=True, slots=True)
class WalTail:
    """The last entry found in a region's WAL.

    Attributes:
        wal_id: 0 if there is none.
        is_lower_bound: Whether there may be more.
        suffix: File suffix of the entries; None if none was found.
        has_hole: Whether the WAL goes on behind the entry that is missing after it.
    """

    wal_id: int
    is_lower_bound: bool
    suffix: str | None
    has_hole: bool = False


@dataclass(frozen=True, slots=True)
class RegionStanding:
    """One region.

    Attributes:
        region_spec_id: Spec that created it; 0 if it was made by hand.
        value: Region value by the columns it is made of, for example ``bucket(id, 4)``: as text where it could be
            decoded, ``?`` where nothing tells it, else hex bytes by field id. Empty for an unsharded one.
        codec: ``lance`` or ``arrow``; None if nothing was ever written.
        sealed_for_lance: Whether pylance's own writers are refused.
        replay_after_wal_id: Last WAL entry that is flushed.
        wal_tail: Last WAL entry found.
        wal_tail_is_lower_bound: Whether the WAL may go on.
        current_generation: Oldest generation that is not flushed.
        merge_lag_generations: Flushed generations that wait for their merge.
        quarantined_generations: Those among them that are in quarantine because they failed their audit, so that no
        merge
            takes them on.
    """

    region_id: RegionId
    region_spec_id: int
    value: Mapping[str, str | None]
    manifest_version: int
    writer_epoch: int
    codec: str | None
    sealed_for_lance: bool
    replay_after_wal_id: int
    wal_tail: int
    wal_tail_is_lower_bound: bool
    current_generation: int
    merged_generation: int
    generations: tuple[GenerationSpan, ...]
    merge_lag_generations: int
    merge_lag_bytes: int
    quarantined_generations: tuple[int, ...] = ()

    @property
    def wal_lag(self) -> int:
        """WAL entries that a restart would replay."""
        return max(0, self.wal_tail - self.replay_after_wal_id)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region_id": str(self.region_id),
            "region_spec_id": self.region_spec_id,
            "value": dict(self.value),
            "manifest_version": self.manifest_version,
            "writer_epoch": self.writer_epoch,
            "codec": self.codec,
            "sealed_for_lance": self.sealed_for_lance,
            "replay_after_wal_id": self.replay_after_wal_id,
            "wal_tail": self.wal_tail,
            "wal_tail_is_lower_bound": self.wal_tail_is_lower_bound,
            "wal_lag": self.wal_lag,
            "current_generation": self.current_generation,
            "merged_generation": self.merged_generation,
            "generations": [span.to_dict() for span in self.generations],
            "merge_lag_generations": self.merge_lag_generations,
            "merge_lag_bytes": self.merge_lag_bytes,
            "quarantined_generations": list(self.quarantined_generations),
        }


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table with all its regions.

    Attributes:
        num_rows: Live rows of the base table.
        regions: Those that can be read, ordered by region id.
        frozen: Why no job works on the table; none if it is not frozen.
        damaged: The others -> which file is missing or damaged, and how.
    """

    table_uri: str
    version: int
    num_rows: int
    primary_key: tuple[str, ...]
    region_specs: tuple[int, ...]
    maintained_indexes: tuple[str, ...]
    regions: tuple[RegionStanding, ...]
    frozen: tuple[Freeze, ...] = ()
    damaged: Mapping[RegionId, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def merge_lag_generations(self) -> int:
        """Flushed generations that wait for their merge, over all regions."""
        return sum(region.merge_lag_generations for region in self.regions)

    @property
    def merge_lag_bytes(self) -> int:
        """Their size, as far as it is recorded."""
        return sum(region.merge_lag_bytes for region in self.regions)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "table_uri": self.table_uri,
            "version": self.version,
            "num_rows": self.num_rows,
            "primary_key": list(self.primary_key),
            "region_specs": list(self.region_specs),
            "maintained_indexes": list(self.maintained_indexes),
            "merge_lag_generations": self.merge_lag_generations,
            "merge_lag_bytes": self.merge_lag_bytes,
            "frozen": [freeze.to_dict() for freeze in self.frozen],
            "regions": [region.to_dict() for region in self.regions],
            "damaged": {str(region_id): cause for region_id, cause in self.damaged.items()},
        }


def table_status(table: BaseTable, store: ObjectStore, manifests: ManifestStore, concurrency: int) -> TableStatus:
    """Read the state of a table: manifests, then the base version, then the ends of the WALs.

    Costs a dozen requests, one for each thousand objects below ``_mem_wal/``, and some for each region that has changed
    since the region snapshot, or has something to merge.
    """
    known = regions_at_rest(table, table.state())
    taker = CensusTaker(store, manifests, concurrency)
    census = taker.take((), lambda _: known)
    state = table.state()
    census = census.with_known(taker, *named_regions(table, state))
    found = census.manifests

    def tail_of(manifest: RegionManifest) -> WalTail:
        if known.get(manifest.region_id) is not manifest:
            return find_wal_tail(store, manifest)
        return WalTail(manifest.known_wal_id, is_lower_bound=False, suffix=LANCE_WAL_SUFFIX)

    tails = map_concurrently(tail_of, found, concurrency)
    quarantined = QuarantineStore(store).by_region()
    specs = state.require_details().region_specs
    values = values_by_rows(store, specs, found, [tail.wal_id for tail in tails], concurrency)
    status = derive_status(table.uri, state, found, tails, quarantined, values)
    return replace(status, damaged={region_id: each.evidence for region_id, each in census.damaged.items()})


def find_wal_tail(store: ObjectStore, manifest: RegionManifest, probes: int = TAIL_PROBES) -> WalTail:
    """Find the end of a region's WAL with at most ``probes`` requests beyond the last entry that its manifest knows."""
    known = manifest.known_wal_id
    suffix = _seen_suffix(store, manifest.region_id, known)
    if suffix is None:
        return WalTail(known, is_lower_bound=False, suffix=None)
    for wal_id in range(known + 1, known + 1 + probes):
        if store.head(wal_entry_path(manifest.region_id, wal_id, suffix)) is None:
            has_hole = ends_in_hole(store, manifest.region_id, suffix, wal_id - 1)
            return WalTail(wal_id - 1, is_lower_bound=False, suffix=suffix, has_hole=has_hole)
    return WalTail(known + probes, is_lower_bound=True, suffix=suffix)


def _seen_suffix(store: ObjectStore, region_id: RegionId, known: int) -> str | None:
    for wal_id in (known, known + 1, known + 2):
        for suffix in WAL_SUFFIXES:
            if wal_id and store.head(wal_entry_path(region_id, wal_id, suffix)) is not None:
                return suffix
    return None


def derive_status(
    table_uri: str,
    state: TableState,
    manifests: Sequence[RegionManifest],
    tails: Sequence[WalTail],
    quarantined: Mapping[RegionId, Collection[int]] | None = None,
    values: Mapping[RegionId, RegionValue] | None = None,
) -> TableStatus:
    """Derive a table's status; ``state`` must have been read after the manifests, and ``tails`` are in their order.

    ``quarantined`` has the quarantined generations of each region, ``values`` those that only rows tell.
    """
    quarantined, values = quarantined or {}, values or {}
    details = state.require_details()
    specs = {spec.spec_id: spec for spec in details.region_specs}
    columns = {number: name for name, number in state.field_ids.items()}
    regions = [
        replace(
            _standing(
                manifest,
                tail,
                details.merged_generation(manifest.region_id),
                _shown_value(manifest, specs, columns, values.get(manifest.region_id)),
            ),
            quarantined_generations=_still_quarantined(
                quarantined.get(manifest.region_id, ()), details.merged_generation(manifest.region_id)
            ),
        )
        for manifest, tail in zip(manifests, tails, strict=True)
    ]
    return TableStatus(
        table_uri=table_uri,
        version=state.version,
        num_rows=state.num_rows,
        primary_key=state.primary_key.columns if state.primary_key is not None else (),
        region_specs=tuple(sorted(specs)),
        maintained_indexes=details.maintained_indexes,
        regions=tuple(sorted(regions, key=lambda region: region.region_id)),
    )


def _still_quarantined(quarantined: Collection[int], merged: int) -> tuple[int, ...]:
    return tuple(sorted(number for number in quarantined if number > merged))


def _standing(manifest: RegionManifest, tail: WalTail, merged: int, value: Mapping[str, str | None]) -> RegionStanding:
    waiting = [flushed for flushed in manifest.flushed_generations if flushed.generation > merged]
    recorded = [flushed.generation for flushed in manifest.flushed_generations]
    return RegionStanding(
        region_id=manifest.region_id,
        region_spec_id=manifest.region_spec_id,
        value=value,
        manifest_version=manifest.version,
        writer_epoch=manifest.writer_epoch,
        codec=_codec_name(tail.suffix, manifest.status),
        sealed_for_lance=manifest.status is RegionStatus.SEALED,
        replay_after_wal_id=manifest.replay_after_wal_id,
        wal_tail=tail.wal_id,
        wal_tail_is_lower_bound=tail.is_lower_bound,
        current_generation=manifest.current_generation,
        merged_generation=merged,
        generations=generation_states(merged, recorded, manifest.current_generation),
        merge_lag_generations=len(waiting),
        merge_lag_bytes=sum(flushed.in_memory_bytes or 0 for flushed in waiting),
    )


def _codec_name(suffix: str | None, status: RegionStatus) -> str | None:
    if suffix is None:
        # Regions of the lance codec are SEALED from their creation on.
        return "lance" if status is RegionStatus.SEALED else None
    return {LANCE_WAL_SUFFIX: "lance", ARROW_WAL_SUFFIX: "arrow"}[suffix]


def _shown_value(
    manifest: RegionManifest,
    specs: Mapping[int, RegionSpec],
    columns: Mapping[int, str],
    told_by_rows: RegionValue | None,
) -> dict[str, str | None]:
    stored = manifest.region_field_values
    spec = specs.get(manifest.region_spec_id)
    if spec is None or manifest.region_spec_id == MANUAL_SPEC_ID:
        return {field_id: value.hex() for field_id, value in stored.items()}
    try:
        value = known_value(spec, manifest) or told_by_rows
    except CorruptionError:
        # The state of a damaged table must still be shown.
        return {field_id: value.hex() for field_id, value in stored.items()}
    if [field.transform for field in spec.fields] == [UNSHARDED]:
        return {}
    names = [describe_field(field, columns) for field in spec.fields]
    if value is None:
        return dict.fromkeys(names, "?")
    return {name: None if part is None else str(part) for name, part in zip(names, value, strict=True)}


def count_states(standing: RegionStanding) -> Mapping[GenerationState, int]:
    """Return how many generations of a region are in each state."""
    counts = dict.fromkeys(GenerationState, 0)
    for span in standing.generations:
        if span.state is not None:
            counts[span.state] += span.last - span.first + 1
    return counts
