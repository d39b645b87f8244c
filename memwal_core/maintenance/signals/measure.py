"""Measuring the signals of a table. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from memwal_core.base_table import BaseTable, TableState, list_versions
from memwal_core.clock import Clock, unix_millis
from memwal_core.errors import CorruptionError, InvalidRequestError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.maintenance.gc import GcPlan
from memwal_core.maintenance.lease import LeaseStore
from memwal_core.maintenance.ledger import Ledger
from memwal_core.maintenance.signals.jobs import check_readings, drain_reading, job_readings, stuck_readings
from memwal_core.maintenance.signals.judge import Reading
from memwal_core.maintenance.signals.signal import Signal
from memwal_core.maintenance.signals.space import garbage_reading
from memwal_core.maintenance.status import RegionStanding, TableStatus, table_status
from memwal_core.manifest import ManifestStore, RegionManifest
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import (
    MANIFEST_SUFFIX,
    WAL_SUFFIXES,
    generation_path,
    manifest_directory,
    parse_numbered_name,
    wal_entry_path,
)
from memwal_core.writer.takeover import read_releases

_EPOCH_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class SignalParts:
    """What signals are measured with.

    Attributes:
        table: The base table.
        manifests: Its region manifests.
        ledger: Job histories.
        leases: Who works on what.
        clock: Time.
        concurrency: Requests under way at once.
        plan_garbage: Plans a garbage collection, which lists every object; None leaves garbage unmeasured.
    """

    table: BaseTable
    manifests: ManifestStore
    ledger: Ledger
    leases: LeaseStore
    clock: Clock
    concurrency: int
    plan_garbage: Callable[[], GcPlan] | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured.

    Attributes:
        readings: In no order.
        status: The status behind them; None if the table is too damaged to have one.
    """

    readings: tuple[Reading, ...]
    status: TableStatus | None


def measure_signals(parts: SignalParts) -> Measured:
    """Measure every signal that can be read from the table.

    A table whose index is gone or whose manifests contradict themselves gives that as its only
    reading, for that is what somebody must look at.

    Args:
        parts: What to read with.

    Raises:
        UnavailableError: Storage failed. Try again.
        InvalidRequestError: The table never had a MemWAL index.
    """
    try:
        return _measured(parts)
    except CorruptionError as error:
        return Measured((Reading(Signal.CORRUPT_MANIFEST, 1, str(error)),), None)
    except InvalidRequestError as error:
        if not error.facts.get("frozen"):
            raise
        return Measured((Reading(Signal.PROGRESS_LOST, 1, error.what),), None)


def _measured(parts: SignalParts) -> Measured:
    table = parts.table
    now = parts.clock.now()
    table.require_mem_wal()
    status = table_status(table, table.store, parts.manifests, parts.concurrency)
    # After the status, so that every region of it has a manifest here.
    manifests = parts.manifests.load_many([region.region_id for region in status.regions], parts.concurrency)
    state = table.state()
    by_region = {manifest.region_id: manifest for manifest in manifests}
    readings = [reading for region in status.regions for reading in _region(region)]
    slow = map_concurrently(
        lambda region: list(_looked_up(parts, region, by_region[region.region_id], now)),
        list(status.regions),
        parts.concurrency,
    )
    readings += [reading for found in slow for reading in found]
    readings += _indexes(parts, state, status)
    readings += _base(parts, state, now)
    readings += job_readings(parts.ledger)
    readings += stuck_readings(parts.leases, parts.ledger, table.settings.lease.ttl_s, now)
    readings += check_readings(table.store, parts.ledger)
    drain = drain_reading(parts.ledger, status.merge_lag_bytes)
    readings += [drain] if drain is not None else []
    if parts.plan_garbage is not None:
        readings.append(garbage_reading(table, parts.plan_garbage()))
    return Measured(tuple(readings), status)


def _name(region_id: RegionId) -> str:
    return f"region {region_id}"


def _region(region: RegionStanding) -> Iterator[Reading]:
    name = _name(region.region_id)
    yield Reading(Signal.PENDING_GENERATIONS, region.merge_lag_generations, name)
    yield Reading(Signal.GENERATION_HOLE, sum(s.last - s.first + 1 for s in region.missing_generations), name)
    yield Reading(Signal.PROGRESS_LOST, int(region.merged_generation >= region.current_generation), name)
    yield Reading(Signal.HELD_GENERATIONS, len(region.held_generations), name)


def _looked_up(
    parts: SignalParts, region: RegionStanding, manifest: RegionManifest, now: datetime
) -> Iterator[Reading]:
    name, store = _name(region.region_id), parts.table.store
    waiting = [each for each in manifest.flushed_generations if each.generation > region.merged_generation]
    if waiting:
        oldest = min(waiting, key=lambda each: each.generation)
        written = [info.modified for info in store.list_objects(generation_path(region.region_id, oldest.path))]
        if written:
            yield Reading(Signal.OLDEST_UNMERGED, _age_s(max(written), now), f"{name} generation {oldest.generation}")
    if region.wal_lag:
        first = region.replay_after_wal_id + 1
        for suffix in WAL_SUFFIXES:
            entry = store.head(wal_entry_path(region.region_id, first, suffix))
            if entry is not None:
                yield Reading(Signal.WAL_LAG, _age_s(entry.modified, now), f"{name} WAL entry {first}")
    yield Reading(Signal.EPOCH_CHANGES, _epoch_changes(parts, manifest, now), name)


def _epoch_changes(parts: SignalParts, manifest: RegionManifest, now: datetime) -> int:
    """Count the claims within the window that took a region from a writer that had not given it back.

    One listing, and one manifest and the note of releases if the region was claimed at all.
    """
    if manifest.writer_epoch <= 1:
        return 0  # The first claim took the region from nobody.
    versions = {}
    for info in parts.table.store.list_objects(manifest_directory(manifest.region_id)):
        try:
            version = parse_numbered_name(info.path.rpartition("/")[2], MANIFEST_SUFFIX)
        except InvalidRequestError:
            continue  # The hint.
        if version <= manifest.version:
            versions[version] = info.modified
    older = [version for version, modified in versions.items() if modified < now - _EPOCH_WINDOW]
    # Of a region whose older versions are collected, only the claims since the oldest one left can be told.
    begin = max(older) if older else min(versions, default=manifest.version)
    before = _epoch_at(parts, manifest, begin)
    if before == manifest.writer_epoch:
        return 0
    return read_releases(parts.table.store, manifest.region_id).missing(max(1, before), manifest.writer_epoch - 1)


def _epoch_at(parts: SignalParts, manifest: RegionManifest, version: int) -> int:
    if version == manifest.version:
        return manifest.writer_epoch
    try:
        return parts.manifests.load_version(manifest.region_id, version).writer_epoch
    except ObjectNotFoundError:
        return manifest.writer_epoch  # Collected meanwhile: nothing is known.


def _indexes(parts: SignalParts, state: TableState, status: TableStatus) -> Iterator[Reading]:
    details = state.require_details()
    for index in parts.table.indexes(state.version):
        name = index.name
        if name.startswith("__") or not index.is_trained:
            continue
        covered = details.index_catchup.get(name, {})
        for region in status.regions:
            lag = details.merged_generation(region.region_id) - covered.get(region.region_id, 0)
            yield Reading(Signal.INDEX_LAG, max(0, lag), f"index {name}, {_name(region.region_id)}")


def _base(parts: SignalParts, state: TableState, now: datetime) -> Iterator[Reading]:
    table = parts.table
    target = table.settings.compact.target_rows
    small = [each for each in table.dataset(state.version).get_fragments() if each.physical_rows < target]
    yield Reading(Signal.BASE_FRAGMENTS, len(small))
    yield Reading(Signal.BASE_VERSIONS, len(list_versions(table)))
    taken = state.require_details().snapshot_ts_millis
    if taken:
        yield Reading(Signal.SNAPSHOT_AGE, (unix_millis(now) - taken) / 1000)


def _age_s(moment: datetime, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds())
