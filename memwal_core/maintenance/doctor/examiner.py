"""Looking at a table: manifests first, then the base table, then everything else."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import BaseTable, RetainedVersion, TableState, retained_versions
from memwal_core.base_table.partitions import PartitionSizes, partition_sizes
from memwal_core.errors import CorruptionError, InternalError, InvalidRequestError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.index.codec import is_legacy_payload
from memwal_core.index.legacy import LegacyIndex
from memwal_core.index.legacy_codec import decode_legacy
from memwal_core.maintenance.doctor.examination import Examination, ObservedRegion
from memwal_core.maintenance.doctor.region_examiner import RegionExaminer
from memwal_core.maintenance.doctor.sampling import KeySampler, SampleBounds
from memwal_core.maintenance.ledger import Ledger, recorded_progress
from memwal_core.manifest import ManifestStore, RegionManifest
from memwal_core.region_spec import RegionSpec
from memwal_core.settings import Settings
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import MEM_WAL_DIRECTORY, RESERVED_NAMES

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Base:
    """What the base table says, as far as it can be read."""

    state: TableState | None
    problem: str | None
    retained: tuple[RetainedVersion, ...]
    legacy: tuple[LegacyIndex, ...]
    partitions: tuple[PartitionSizes, ...]


class Examiner:
    """Looks at one table. Reads only, and goes on where something cannot be read.

    Args:
        table: The base table.
        manifests: Its region manifests.
        ledger: Its job histories.
        settings: How much to look at.
    """

    def __init__(self, table: BaseTable, manifests: ManifestStore, ledger: Ledger, settings: Settings) -> None:
        """Keep the parts; nothing is read."""
        self._table = table
        self._ledger = ledger
        self._settings = settings
        self._manifests = manifests
        self._regions = RegionExaminer(table.store, manifests, settings.doctor.history)

    def examine(self) -> Examination:
        """Look at everything.

        Raises:
            UnavailableError: Storage failed. Try again.
        """
        limit = self._settings.storage.concurrency
        region_ids = self._manifests.region_ids()
        found = map_concurrently(self._regions.manifest, region_ids, limit)
        base = self._base()
        sampler = self._sampler(base.state)
        specs = self._specs(base.state)

        def look(number: int) -> ObservedRegion:
            manifest = found[number]
            spec = specs.get(manifest.region_spec_id) if isinstance(manifest, RegionManifest) else None
            return self._regions.examine(region_ids[number], manifest, spec, sampler)

        regions = map_concurrently(look, range(len(region_ids)), limit)
        return Examination(
            table_uri=self._table.uri,
            now=self._table.clock.now(),
            state=base.state,
            state_problem=base.problem,
            retained=base.retained,
            regions=tuple(regions),
            strangers=self._strangers(region_ids),
            legacy=base.legacy,
            recorded_progress=self._recorded_progress(),
            jobs={key: self._ledger.may_run(key) for key in self._ledger.known_keys()},
            partitions=base.partitions,
            retrain_imbalance=self._settings.doctor.retrain_imbalance_threshold,
            wal_tail_age_s=self._settings.doctor.wal_tail_age_s,
            orphan_age_s=self._settings.gc.orphan_age_s,
            orphan_share=self._settings.doctor.orphan_share,
        )

    def _base(self) -> _Base:
        try:
            state = self._table.state()
            retained = retained_versions(self._table, self._settings.storage.concurrency)
            legacy = self._legacy(retained, state) if state.is_legacy else ()
        except CorruptionError as error:
            return _Base(None, str(error), (), (), ())
        return _Base(state, None, retained, legacy, self._partitions(state))

    def _partitions(self, state: TableState) -> tuple[PartitionSizes, ...]:
        try:
            return partition_sizes(self._table, state.version)
        except (ObjectNotFoundError, InvalidRequestError, InternalError) as error:
            _log.info("partition sizes not read [table=%s]: %s", self._table.uri, error)
            return ()

    def _legacy(self, retained: tuple[RetainedVersion, ...], state: TableState) -> tuple[LegacyIndex, ...]:
        versions = [each.version for each in retained if each.legacy and each.branch is None]
        found = []
        for version in sorted({*versions[-self._settings.doctor.history :], state.version}):
            try:
                entry = self._table.manifests.read(version).mem_wal
            except ObjectNotFoundError:
                continue  # Cleaned up since it was listed.
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
        schema = pa.schema([state.schema.field(name) for name in key.columns])
        return KeySampler(schema, state.field_ids, self._table.storage_options, bounds)

    def _specs(self, state: TableState | None) -> dict[int, RegionSpec]:
        if state is None or state.details is None:
            return {}
        return {spec.spec_id: spec for spec in state.details.region_specs}

    def _recorded_progress(self) -> dict[RegionId, int]:
        try:
            return recorded_progress(self._ledger.runs())
        except CorruptionError:
            return {}  # Told by the job's own next run; the table does not depend on it.

    def _strangers(self, region_ids: list[RegionId]) -> tuple[str, ...]:
        known = {str(region_id) for region_id in region_ids} | RESERVED_NAMES
        return tuple(name for name in self._table.store.list_directories(MEM_WAL_DIRECTORY) if name not in known)
