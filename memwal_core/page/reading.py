"""Reading what the page shows of one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from memwal_core.admin import CatchupRequest, GcRequest, SnapshotRequest, TableAdmin
from memwal_core.cli.quality import open_quality
from memwal_core.errors import MemwalError
from memwal_core.ids import RegionId
from memwal_core.maintenance.catchup import CatchupPlan
from memwal_core.maintenance.gc import GcPlan
from memwal_core.maintenance.ledger import RunRecord, RunVerdict
from memwal_core.maintenance.signals import JudgedSignal, Level, SignalParts, judge_signals, measure_signals
from memwal_core.maintenance.status import RegionStanding, TableStatus
from memwal_core.page.checks import QualityView, show_stage
from memwal_core.page.health import Health, HealthInput, judge_health
from memwal_core.page.timeline import Stretch, draw_timeline
from memwal_core.quality import Stage
from memwal_core.settings import MergeTriggerSettings
from memwal_core.storage.layout import generation_path
from memwal_core.tasks.registry import RegisteredTable

SHOWN_RUNS = 25
_AGED_REGIONS = 50
"""Regions whose oldest waiting generation is looked up; one listing each."""


@dataclass(frozen=True, slots=True)
class RegionView:
    """One region.

    Attributes:
        standing: What its manifest and the base table say.
        waiting_age_s: Age of the oldest generation that waits for its merge; 0 = none, or not looked up.
        index_lag: Index -> generations behind the merge.
        health: Its score.
        timeline: Its generations.
    """

    standing: RegionStanding
    waiting_age_s: float
    index_lag: Mapping[str, int]
    health: Health
    timeline: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class TableView:
    """One table; with an error instead of the rest if it cannot be read.

    Attributes:
        table: Its entry in the registry.
        error: Why it cannot be read; empty if it can.
        status: Its state.
        health: The worst of its regions, with what concerns the whole table.
        regions: Worst first.
        catchup: Where the indexes stand.
        snapshot_age_s: Age of the region snapshot; None if there is none.
        snapshot_reason: Whether it is up to date, and why not.
        runs: Recent runs of all jobs, the newest first.
        pauses: Jobs that failed last, by name.
        quality: Newest results of the checks, and what they hold back; None if the table cannot be read.
        garbage: What a collection would do; None on the overview.
        garbage_error: Why that is not known.
        signals: Those that warn or page, the worst first; None on the overview.
    """

    table: RegisteredTable
    error: str = ""
    status: TableStatus | None = None
    health: Health = field(default_factory=lambda: Health(0, "it cannot be read", ()))
    regions: tuple[RegionView, ...] = ()
    catchup: CatchupPlan | None = None
    snapshot_age_s: float | None = None
    snapshot_reason: str = ""
    runs: tuple[RunRecord, ...] = ()
    pauses: Mapping[str, RunVerdict] = field(default_factory=dict)
    quality: QualityView | None = None
    garbage: GcPlan | None = None
    garbage_error: str = ""
    signals: tuple[JudgedSignal, ...] | None = None


def read_table(admin: TableAdmin, table: RegisteredTable, *, with_garbage: bool) -> TableView:
    """Read a table: manifests, base version, indexes, ledger, and on request what is garbage.

    Args:
        admin: The table; nothing is changed.
        table: Its entry.
        with_garbage: Plan a garbage collection, too, which lists every object.

    Raises:
        MemwalError: The table cannot be read.
    """
    status = admin.status()
    catchup = admin.catch_up(CatchupRequest(dry_run=True)).plan
    now = admin.table.clock.now()
    pauses, quality = _pauses(admin), _quality(admin, now)
    details = admin.table.state().require_details()
    late_since = details.snapshot_ts_millis / 1000 if details.snapshot_ts_millis else None
    snapshot_age_s = max(0.0, now.timestamp() - late_since) if late_since is not None else None
    snapshot = admin.build_snapshot(SnapshotRequest(dry_run=True)).plan
    ages = _waiting_ages(admin, status, now)
    regions = [
        _region(
            standing,
            ages.get(standing.region_id, 0.0),
            {
                index.name: standing.merged_generation
                - details.index_catchup.get(index.name, {}).get(standing.region_id, 0)
                for index in catchup.indexes
                if not index.vectors_missing
            },
            table.merge_triggers,
        )
        for standing in status.regions
    ]
    regions.sort(key=lambda region: (region.health.score, -region.standing.merge_lag_generations))
    facts = HealthInput(
        waiting_generations=max((region.merge_lag_generations for region in status.regions), default=0),
        waiting_bytes=status.merge_lag_bytes,
        waiting_age_s=max(ages.values(), default=0.0),
        index_lag=max((index.lag for index in catchup.indexes), default=0),
        wal_lag=max((region.wal_lag for region in status.regions), default=0),
        failures=max((pause.failures for pause in pauses.values()), default=0),
        snapshot_age_s=snapshot_age_s or 0.0 if snapshot.is_due else 0.0,
        danger=next((region.health.danger for region in regions if region.health.danger), quality.danger),
    )
    garbage, garbage_error = _garbage(admin) if with_garbage else (None, "")
    return TableView(
        table=table,
        status=status,
        health=judge_health(facts, table.merge_triggers),
        regions=tuple(regions),
        catchup=catchup,
        snapshot_age_s=snapshot_age_s,
        snapshot_reason=snapshot.reason.value,
        runs=tuple(reversed(admin.insight.ledger.runs()[-SHOWN_RUNS:])),
        pauses=pauses,
        quality=quality,
        garbage=garbage,
        garbage_error=garbage_error,
        signals=_signals(admin, garbage) if with_garbage else None,
    )


def unreadable(table: RegisteredTable, error: MemwalError) -> TableView:
    """Return what is shown of a table that cannot be read."""
    return TableView(table, error=str(error))


def _region(
    standing: RegionStanding, age_s: float, index_lag: Mapping[str, int], triggers: MergeTriggerSettings
) -> RegionView:
    missing = standing.missing_generations
    danger = f"generation {missing[0].first} should be recorded and is not" if missing else ""
    facts = HealthInput(
        waiting_generations=standing.merge_lag_generations,
        waiting_bytes=standing.merge_lag_bytes,
        waiting_age_s=age_s,
        index_lag=max(index_lag.values(), default=0),
        wal_lag=standing.wal_lag,
        danger=danger,
    )
    timeline = draw_timeline(standing.generations, standing.held_generations)
    return RegionView(standing, age_s, index_lag, judge_health(facts, triggers), timeline)


def _quality(admin: TableAdmin, now: datetime) -> QualityView:
    checked = open_quality(admin)
    before, after = (show_stage(stage, checked.newest(stage), now) for stage in (Stage.BEFORE, Stage.AFTER))
    return QualityView(before, after, checked.holds.load())


def _pauses(admin: TableAdmin) -> dict[str, RunVerdict]:
    ledger = admin.insight.ledger
    verdicts = {str(key): ledger.may_run(key) for key in ledger.known_keys()}
    return {name: verdict for name, verdict in verdicts.items() if verdict.failures}


def _waiting_ages(admin: TableAdmin, status: TableStatus, now: datetime) -> dict[RegionId, float]:
    late = [region for region in status.regions if region.merge_lag_generations]
    late.sort(key=lambda region: -region.merge_lag_generations)
    found = {}
    for region in late[:_AGED_REGIONS]:
        manifest = admin.manifests.load(region.region_id)
        waiting = [each for each in manifest.flushed_generations if each.generation > region.merged_generation]
        if not waiting:
            continue
        oldest = min(waiting, key=lambda each: each.generation)
        written = [
            info.modified for info in admin.table.store.list_objects(generation_path(region.region_id, oldest.path))
        ]
        if written:
            found[region.region_id] = max(0.0, (now - max(written)).total_seconds())
    return found


def _garbage(admin: TableAdmin) -> tuple[GcPlan | None, str]:
    try:
        return admin.collect_garbage(GcRequest(dry_run=True)).plan, ""
    except MemwalError as error:
        return None, str(error)


def _signals(admin: TableAdmin, garbage: GcPlan | None) -> tuple[JudgedSignal, ...]:
    table, insight = admin.table, admin.insight
    parts = SignalParts(
        table=table,
        manifests=admin.manifests,
        ledger=insight.ledger,
        leases=insight.leases,
        clock=table.clock,
        concurrency=table.settings.storage.concurrency,
        plan_garbage=(lambda: garbage) if garbage is not None else None,
    )
    report = judge_signals(table.uri, measure_signals(parts).readings, table.settings.status)
    return tuple(each for each in report.signals if each.level is not Level.OK)
