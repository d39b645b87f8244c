"""Measuring the signals of a table that was examined. Reads only, a few requests per region.

A signal that has nothing to count reads 0; one that cannot be measured has no reading at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from memwal_core.base_table import TableState, list_fragments, list_versions, named_regions
from memwal_core.clock import unix_millis
from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.format.paths import JOURNAL_DIRECTORY, generation_path, wal_entry_path
from memwal_core.jobs.compact.cleanup import Kept, plan_cleanup
from memwal_core.jobs.compact.plan import is_small
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.needed import needed_versions
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.jobs.gc.state import BaseState
from memwal_core.observe.doctor import Examination
from memwal_core.observe.doctor.examination import ExaminedRegion
from memwal_core.observe.findings import Finding
from memwal_core.observe.signals.jobs import (
    Histories,
    check_readings,
    drain_readings,
    job_readings,
    parked_readings,
    stuck_readings,
)
from memwal_core.observe.signals.judge import Reading
from memwal_core.observe.signals.signal import SIGNALS, Signal
from memwal_core.observe.signals.space import space_readings
from memwal_core.observe.status import RegionStanding, TableStatus
from memwal_core.region import RegionManifest
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import is_fence
from memwal_core.writer.claim.takeover import read_releases

_log = logging.getLogger(__name__)

_EPOCH_WINDOW = timedelta(hours=1)
_FENCES_READ = 64
_SKEW_MILLIS = 60_000
"""The store has another clock than the process that took the snapshot."""


def measure_signals(
    opened: OpenTable, seen: Examination, findings: Iterable[Finding], garbage: GcPlan | None
) -> tuple[Reading, ...]:
    """Measure what can be measured of a table.

    Args:
        opened: What to read with.
        seen: Its examination.
        findings: What the doctor found in it.
        garbage: The plan of a collection; None leaves garbage unmeasured.
    """
    histories = Histories(opened.ledger)
    groups: list[Callable[[], Iterable[Reading]]] = [
        lambda: job_readings(histories),
        lambda: stuck_readings(opened.leases, histories, seen.now),
        lambda: check_readings(opened.base.store, histories, opened.freezes),
        lambda: parked_readings(histories),
    ]
    status, state = seen.status, seen.state
    if status is not None and state is not None:
        groups += [
            lambda: _regions(opened, seen, status),
            lambda: _indexes(opened, state, status),
            lambda: _base(opened, state, seen),
            lambda: drain_readings(histories, status.merge_lag_bytes),
        ]
        if garbage is not None:
            history_s = opened.settings.retention.history_s
            groups.append(
                lambda: space_readings(
                    opened.base, garbage, history_s, lambda: _is_fresh_copy(opened, histories, seen.now)
                )
            )
    readings = list(_counted(findings))
    for group in groups:
        try:
            readings += list(group())
        except (CorruptionError, ObjectNotFoundError) as error:
            _log.warning("signals not measured [table=%s]: %s", seen.table_uri, error)
    return tuple(readings)


def _counted(findings: Iterable[Finding]) -> Iterator[Reading]:
    """Count the findings that say what a signal says."""
    found = list(findings)
    for signal, facts in SIGNALS.items():
        if facts.findings:
            own = [each for each in found if each.finding_id in facts.findings]
            yield Reading(signal, len(own), own[0].subject if own else "")


def _regions(opened: OpenTable, seen: Examination, status: TableStatus) -> Iterator[Reading]:
    for signal in (Signal.PENDING_GENERATIONS, Signal.QUARANTINED_GENERATIONS, Signal.OLDEST_UNMERGED):
        yield Reading(signal, 0)
    yield Reading(Signal.WAL_LAG, 0)
    yield Reading(Signal.EPOCH_CHANGES, 0)
    standings = {region.region_id: region for region in status.regions}
    looked_up = map_concurrently(
        lambda pair: list(_region(opened, seen, *pair, standings[pair[0].region_id])),
        list(seen.readable()),
        opened.settings.storage.concurrency,
    )
    for readings in looked_up:
        yield from readings


def _region(
    opened: OpenTable, seen: Examination, region: ExaminedRegion, manifest: RegionManifest, standing: RegionStanding
) -> Iterator[Reading]:
    region_id, store = region.region_id, opened.base.store
    name = _name(region)
    yield Reading(Signal.PENDING_GENERATIONS, standing.merge_lag_generations, name, region_id)
    yield Reading(Signal.QUARANTINED_GENERATIONS, len(standing.quarantined_generations), name, region_id)
    yield Reading(Signal.EPOCH_CHANGES, _epoch_changes(opened, region, manifest, seen.now), name, region_id)
    waiting = [each for each in manifest.flushed_generations if each.generation > standing.merged_generation]
    if waiting:
        oldest = min(waiting, key=lambda each: each.generation)
        written = [info.modified for info in store.list_objects(generation_path(region_id, oldest.path))]
        if written:
            subject = f"{name} generation {oldest.generation}"
            yield Reading(Signal.OLDEST_UNMERGED, _age_s(max(written), seen.now), subject, region_id)
    yield from _wal_lag(opened, region, manifest, seen.now)


def _wal_lag(opened: OpenTable, region: ExaminedRegion, manifest: RegionManifest, now: datetime) -> Iterator[Reading]:
    """Read the age of the oldest entry with rows that waits for its flush."""
    if region.tail is None or region.tail.suffix is None:
        return
    first = manifest.replay_after_wal_id + 1
    for wal_id in range(first, min(region.tail.wal_id, first + _FENCES_READ) + 1):
        path = wal_entry_path(region.region_id, wal_id, region.tail.suffix)
        entry = opened.base.store.head(path)
        suffix = region.tail.suffix
        if entry is None or is_fence(opened.base.store, region.region_id, suffix, wal_id, entry.size_bytes):
            continue
        evidence = {"last": region.tail.wal_id, "writer_epoch": manifest.writer_epoch}
        subject = f"{_name(region)} WAL entry {wal_id}"
        yield Reading(Signal.WAL_LAG, _age_s(entry.modified, now), subject, region.region_id, evidence)
        return


def _epoch_changes(opened: OpenTable, region: ExaminedRegion, manifest: RegionManifest, now: datetime) -> int:
    """Count the claims within the window that took a region from a writer that had not given it back.

    At most one manifest and the note of releases are read, if the region was claimed at all.
    """
    if manifest.writer_epoch <= 1:
        return 0  # The first claim took the region from nobody.
    versions = {version: written for version, written in region.manifests.items() if version <= manifest.version}
    older = [version for version, written in versions.items() if written < now - _EPOCH_WINDOW]
    # Of a region whose older versions are collected, only the claims since the oldest one left can be told.
    begin = max(older) if older else min(versions, default=manifest.version)
    before = _epoch_at(opened, manifest, begin)
    if before == manifest.writer_epoch:
        return 0
    releases = read_releases(opened.base.store, manifest.region_id)
    return releases.missing(max(1, before), manifest.writer_epoch - 1)


def _epoch_at(opened: OpenTable, manifest: RegionManifest, version: int) -> int:
    if version == manifest.version:
        return manifest.writer_epoch
    try:
        return opened.manifests.load_version(manifest.region_id, version).writer_epoch
    except (CorruptionError, ObjectNotFoundError):
        return manifest.writer_epoch  # Damaged or collected: nothing is known.


def _indexes(opened: OpenTable, state: TableState, status: TableStatus) -> Iterator[Reading]:
    yield Reading(Signal.INDEX_LAG, 0)
    if not list_fragments(opened.base, state.version):
        return  # There is nothing to cover: no catch-up records anything, and no search reads unindexed rows.
    details = state.require_details()
    for index in opened.base.indexes(state.version):
        name = index.name
        if name.startswith("__") or not index.is_trained:
            continue
        covered = details.index_catchup.get(name, {})
        for region in status.regions:
            lag = details.merged_generation(region.region_id) - covered.get(region.region_id, 0)
            subject = f"index {name}, region {region.region_id}"
            yield Reading(Signal.INDEX_LAG, max(0, lag), subject, region.region_id)


def _base(opened: OpenTable, state: TableState, seen: Examination) -> Iterator[Reading]:
    fragments = list_fragments(opened.base, state.version)
    yield Reading(Signal.BASE_FRAGMENTS, sum(is_small(each, opened.settings.compact) for each in fragments))
    yield _versions(opened, state, seen)
    taken = state.require_details().snapshot_ts_millis
    if taken:
        yield _snapshot_age(opened, state, seen, taken)


def _snapshot_age(opened: OpenTable, state: TableState, seen: Examination, taken_millis: int) -> Reading:
    """Read since when regions differ from the snapshot: one of a table at rest is old and right."""
    after = taken_millis + _SKEW_MILLIS
    later = [(written, version, region) for region in seen.regions for version, written in region.manifests.items()
             if unix_millis(written) > after]  # fmt: skip
    rows = {row.region_id: row.version for row in named_regions(opened.base, state)[1]} if later else {}
    # Of a copy, all files are younger than the snapshot, which has their newest versions all the same.
    missed = [(written, region) for written, version, region in later if version > rows.get(region.region_id, 0)]
    evidence = {"age_s": max(0.0, (unix_millis(seen.now) - taken_millis) / 1000)}
    if not missed:
        return Reading(Signal.SNAPSHOT_AGE, 0, evidence=evidence)
    oldest, region = min(missed, key=lambda each: each[0])
    return Reading(Signal.SNAPSHOT_AGE, _age_s(oldest, seen.now), _name(region), region.region_id, evidence)


def _versions(opened: OpenTable, state: TableState, seen: Examination) -> Reading:
    """Read the age of the oldest version that the next compaction removes.

    Which versions had merged more than the newest one, and stay for that, only a deep look knows.
    """
    versions = list_versions(opened.base)
    base = BaseState(state.version, state.num_rows, state.details, retained=seen.retained)
    needed = needed_versions(base, ()) | {each.version for each in versions if each.has_staged}
    plan = plan_cleanup(versions, seen.now, opened.settings.compact, needed=needed)
    late, kept = set(plan.remove), plan.counts().get(Kept.NEEDED, 0)
    age_s = max((_age_s(each.timestamp, seen.now) for each in versions if each.version in late), default=0.0)
    subject = f"{len(late):,} of {len(versions):,} versions"
    subject += f", and {kept:,} that garbage collection needs" if kept else ""
    return Reading(
        Signal.BASE_VERSIONS,
        age_s,
        subject,
        evidence={"versions": len(versions), "late": len(late), "needed": kept},
    )


def _is_fresh_copy(opened: OpenTable, histories: Histories, now: datetime) -> bool:
    """Return whether ``memwal backup`` or ``clone`` made the table within the history, without a collection since."""
    try:
        if histories.of(JobKey("gc")).runs:
            return False
    except CorruptionError:
        return False
    made = [info.modified for info in opened.base.store.list_objects(JOURNAL_DIRECTORY)]
    return bool(made) and _age_s(max(made), now) < opened.settings.retention.history_s


def _name(region: ExaminedRegion) -> str:
    return f"region {region.region_id}"


def _age_s(moment: datetime, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds())
