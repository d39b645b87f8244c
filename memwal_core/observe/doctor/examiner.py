"""Examine a table: manifests first, then the base table, then everything else."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memwal_core.base_table import (
    BaseTable,
    RetainedVersion,
    TableState,
    recall_versions,
    regions_at_rest,
    retained_versions,
)
from memwal_core.base_table.blobs import blob_columns
from memwal_core.base_table.history.torn import find_torn_versions
from memwal_core.coordination.freeze import MaintenanceRecord
from memwal_core.errors import CorruptionError, InvalidRequestError, ObjectNotFoundError
from memwal_core.flushed.read import MergeTarget
from memwal_core.format.memwal_index.codec import is_legacy_payload
from memwal_core.format.memwal_index.legacy import LegacyIndex
from memwal_core.format.memwal_index.legacy_codec import decode_legacy
from memwal_core.format.paths import MEM_WAL_DIRECTORY, RESERVED_NAMES
from memwal_core.ids import RegionId
from memwal_core.jobs.context import OpenTable, Progress, unwatched
from memwal_core.jobs.readability.files import BaseFiles, RegionProof, examine_base_files
from memwal_core.jobs.readability.indexes import IndexFiles, examine_indexes
from memwal_core.observe.doctor.examination import Examination, ExaminedRegion
from memwal_core.observe.doctor.region_examiner import RegionExaminer, RestingRegion
from memwal_core.observe.doctor.sampling import KeySampler, SampleBounds
from memwal_core.observe.region_values import values_by_rows
from memwal_core.observe.status import TableStatus, derive_status
from memwal_core.region import RegionManifest
from memwal_core.region.census import MANY_REGIONS
from memwal_core.region.listing import objects_of, region_of
from memwal_core.region.quarantine import QuarantineStore
from memwal_core.region.spec import RegionSpec
from memwal_core.storage.concurrent import map_concurrently

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Base:
    """The readable part of the base table."""

    state: TableState | None
    problem: str | None
    retained: tuple[RetainedVersion, ...]
    legacy: tuple[LegacyIndex, ...]
    torn: Mapping[str, str] = field(default_factory=dict)


class Examiner:
    """Examines one table. Reads only, and goes on where something cannot be read.

    Args:
        deep: Whether to list every object, open every flushed MemTable, compare keys and learn what every retained
            version says; otherwise a few requests per region do, in a table of many per region that
            has changed.
        contents: With ``deep``, also read every row of the base table and of flushed MemTables, and the manifests of
            all versions, those included that a collection remembers.
    """

    def __init__(
        self, opened: OpenTable, *, deep: bool, contents: bool = False, progress: Progress = unwatched
    ) -> None:
        """Keep the parts; nothing is read."""
        self._contents = contents
        self._progress = progress
        self._table = opened.base
        self._freezes = opened.freezes
        self._settings = opened.settings
        self._manifests = opened.manifests
        self._deep = deep

    def examine(self) -> Examination:
        """Look at the table; ``UnavailableError`` if storage failed."""
        limit = self._settings.storage.concurrency
        region_ids = self._manifests.region_ids()
        examiner = RegionExaminer(
            self._table.store,
            self._manifests,
            self._settings.doctor.history,
            deep=self._deep,
            resting=self._resting(len(region_ids)),
        )
        found = map_concurrently(examiner.manifest, region_ids, limit)
        base = self._base()
        sampler = self._sampler(base.state) if self._deep else None
        specs = self._specs(base.state)
        details = base.state.details if base.state is not None else None
        proof = RegionProof(self._table.store, _target(base.state), self._contents)

        def examine_region(number: int) -> ExaminedRegion:
            manifest = found[number]
            spec = specs.get(manifest.region_spec_id) if isinstance(manifest, RegionManifest) else None
            merged = details.merged_generation(region_ids[number]) if details is not None else 0
            return examiner.examine(region_ids[number], manifest, spec, sampler, proof, merged)

        record, record_problem = self._record()
        regions = map_concurrently(examine_region, range(len(region_ids)), limit)
        return Examination(
            table_uri=self._table.uri,
            now=self._table.clock.now(),
            state=base.state,
            state_problem=base.problem,
            retained=base.retained,
            regions=tuple(regions),
            strangers=self._strangers(),
            legacy=base.legacy,
            record=record,
            record_problem=record_problem,
            indexes=self._indexes(base.state),
            retrain_imbalance=self._settings.doctor.retrain_imbalance_threshold,
            orphan_age_s=self._settings.gc.orphan_age_s,
            orphan_share=self._settings.doctor.orphan_share,
            deep=self._deep,
            status=self._status(base.state, regions),
            torn=base.torn,
            base_files=self._base_files(base.state),
            obstacle=self._obstacle(base.state, bool(region_ids)),
        )

    def _resting(self, regions: int) -> Mapping[RegionId, RestingRegion]:
        """Return the regions at rest, which a look that is not deep does not read; none where they are few."""
        if self._deep or regions <= MANY_REGIONS:
            return {}
        try:
            rows = regions_at_rest(self._table, self._table.state())
        except CorruptionError:
            return {}  # The look at the base table meets it, too.
        objects = objects_of(self._table.store, rows) if rows else {}
        return {region_id: RestingRegion(row, objects[region_id]) for region_id, row in rows.items()}

    def _base_files(self, state: TableState | None) -> BaseFiles:
        if state is None or not self._deep:
            return BaseFiles()
        limit = self._settings.storage.concurrency
        return examine_base_files(self._table, state, limit, self._progress, contents=self._contents)

    def _obstacle(self, state: TableState | None, has_regions: bool) -> str:
        if state is None or state.details is None or not has_regions:
            return ""  # Without an index there is nothing to merge; other checks say what is wrong.
        return _merge_obstacle(self._table, state, blob_columns(state.schema))

    def _base(self) -> _Base:
        try:
            state = self._table.state()
            retained = self._retained() if self._deep else ()
            legacy = self._legacy(retained, state) if state.is_legacy else ()
        except CorruptionError as error:
            torn = {each.path: each.problem for each in find_torn_versions(self._table.store).torn}
            return _Base(None, str(error), (), (), torn)
        return _Base(state, None, retained, legacy)

    def _retained(self) -> tuple[RetainedVersion, ...]:
        recall = None if self._contents else recall_versions
        return retained_versions(self._table, self._settings.storage.concurrency, recall=recall)

    def _indexes(self, state: TableState | None) -> IndexFiles:
        if state is None or not self._deep:
            return IndexFiles()
        return examine_indexes(self._table, state.version, self._progress, contents=self._contents)

    def _status(self, state: TableState | None, regions: Sequence[ExaminedRegion]) -> TableStatus | None:
        if state is None or state.details is None:
            return None
        readable = [(each.manifest, each.tail) for each in regions if each.manifest is not None]
        manifests, tails = [manifest for manifest, _ in readable], [tail for _, tail in readable if tail is not None]
        values = values_by_rows(
            self._table.store,
            state.details.region_specs,
            manifests,
            [tail.wal_id for tail in tails],
            self._settings.storage.concurrency,
        )
        quarantined = QuarantineStore(self._table.store).by_region()
        return derive_status(self._table.uri, state, manifests, tails, quarantined, values)

    def _legacy(self, retained: tuple[RetainedVersion, ...], state: TableState) -> tuple[LegacyIndex, ...]:
        versions = [each.version for each in retained if each.legacy and each.branch is None]
        found = []
        for version in sorted({*versions[-self._settings.doctor.history :], state.version}):
            try:
                entry = self._table.manifests.read(version).mem_wal
            except ObjectNotFoundError:
                continue  # It was removed after it was listed.
            if entry is not None and is_legacy_payload(entry.payload):
                found.append(decode_legacy(entry.payload, version))
        return tuple(found)

    def _sampler(self, state: TableState | None) -> KeySampler | None:
        bounds = SampleBounds(self._settings.doctor.sample_keys, self._settings.doctor.sample_rows)
        if state is None or not bounds.keys:
            return None
        try:
            key = state.require_primary_key()
        except InvalidRequestError:
            return None
        return KeySampler(
            state.schema,
            key.columns,
            state.field_ids,
            self._table.storage_options,
            bounds,
            only_waiting=len(self._specs(state)) > 1,
        )

    def _specs(self, state: TableState | None) -> dict[int, RegionSpec]:
        if state is None or state.details is None:
            return {}
        return {spec.spec_id: spec for spec in state.details.region_specs}

    def _record(self) -> tuple[MaintenanceRecord | None, str]:
        try:
            return self._freezes.load(), ""
        except CorruptionError as error:
            return None, str(error)

    def _strangers(self) -> tuple[str, ...]:
        names = self._table.store.list_directories(MEM_WAL_DIRECTORY)
        return tuple(name for name in names if name not in RESERVED_NAMES and region_of(name) is None)


def _target(state: TableState | None) -> MergeTarget | None:
    """Return what merged rows must look like; None if no version of the table can be read."""
    return MergeTarget.of(state, state.primary_key.columns) if state is not None else None


def _merge_obstacle(table: BaseTable, state: TableState, blobs: Sequence[str]) -> str:
    """Return why no merge can take this table's rows at all; empty if one can."""
    if blobs:
        return f"columns {', '.join(blobs)} hold blobs, which MemTables cannot"
    try:
        table.require_mem_wal(state)
        state.merge_key()
    except InvalidRequestError as error:
        return f"{error.what} ({error.remedy})"
    return ""
