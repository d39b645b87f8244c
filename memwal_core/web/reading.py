"""Reading what the page shows of one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from memwal_core.coordination.freeze import Freeze
from memwal_core.coordination.ledger import RunRecord, runs_in
from memwal_core.errors import MemwalError
from memwal_core.fleet.deep_looks import DeepFindings
from memwal_core.jobs.catchup.plan import CatchupPlan
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.observe.health import Health, examine
from memwal_core.observe.signals import Signal
from memwal_core.observe.status import RegionStanding, TableStatus
from memwal_core.quality.model import Stage
from memwal_core.quality.table import QualityTable
from memwal_core.table import Table
from memwal_core.web.checks import QualityView, show_stage
from memwal_core.web.events import Event, list_events
from memwal_core.web.fleet import TableSummary
from memwal_core.web.timeline import Stretch, draw_timeline
from memwal_core.web.trends import Chart, Now, draw_trends

SHOWN_EVENTS = 40


@dataclass(frozen=True, slots=True)
class RegionPage:
    """One region.

    Attributes:
        standing: What its manifest and the base table say.
        index_lag: Index -> generations behind the merge.
    """

    standing: RegionStanding
    index_lag: Mapping[str, int]
    health: Health
    timeline: tuple[Stretch, ...]

    @property
    def waiting_age_s(self) -> float:
        """Age of the oldest generation that waits for its merge; 0 = none."""
        return self.health.value(Signal.OLDEST_UNMERGED) or 0.0


@dataclass(frozen=True, slots=True)
class TablePage:
    """One table, as far as it can be read.

    Attributes:
        error: Why the rest cannot be read; None if it can.
        regions: Worst first.
        catchup: Where the indexes stand; None if the rest cannot be read.
        snapshot_reason: Whether the region snapshot is up to date, and why not.
        runs: The remembered runs of all jobs that can be read, the newest last.
        freezes: Of the table and its regions, those that ended among them.
        quality: Newest results of the checks, and what they hold back; None if the rest cannot be read.
        garbage: What a collection would do; None if that is not known.
        garbage_error: Why not.
        gaps: What else cannot be shown, and why.
        examined_at: When the doctor last looked at it in depth; None if it has not yet.
    """

    health: Health
    error: MemwalError | None = None
    regions: tuple[RegionPage, ...] = ()
    catchup: CatchupPlan | None = None
    snapshot_reason: str = ""
    runs: tuple[RunRecord, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    quality: QualityView | None = None
    garbage: GcPlan | None = None
    garbage_error: str = ""
    gaps: tuple[str, ...] = ()
    examined_at: datetime | None = None

    @property
    def examined_age_s(self) -> float | None:
        """Seconds since the doctor last looked at it in depth; None if it has not yet."""
        return (self.health.seen.now - self.examined_at).total_seconds() if self.examined_at is not None else None

    @property
    def status(self) -> TableStatus | None:
        """Its state; None if it cannot be read."""
        return self.health.status

    @property
    def snapshot_age_s(self) -> float | None:
        """Age of the region snapshot; None if there is none."""
        found = next((each.reading for each in self.health.signals if each.signal is Signal.SNAPSHOT_AGE), None)
        return float(str(found.evidence["age_s"])) if found is not None else None

    @property
    def summary(self) -> TableSummary:
        """What the overview would show."""
        return TableSummary.of(self.health, self.runs)

    @property
    def charts(self) -> tuple[Chart, ...]:
        """The course of its numbers."""
        status = self.status
        if status is None:
            return ()
        unindexed = [index.unindexed_rows for index in self.catchup.indexes] if self.catchup is not None else []
        now = Now(
            self.health.seen.now,
            status.merge_lag_bytes,
            status.merge_lag_generations,
            max(unindexed, default=None),
            status.version,
        )
        return draw_trends(self.runs, now)

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened to it, the newest first."""
        return list_events(self.runs, self.freezes, SHOWN_EVENTS)


def read_summary(opened: Table, deep: DeepFindings) -> TableSummary:
    """Read what the overview shows of a table: manifests, base version, signals, ledger; add what a deep look found.

    Raises:
        MemwalError: The table cannot be read.
    """
    return TableSummary.of(examine(opened.opened, deep=False).including(deep.found, deep.space), _runs(opened)[0])


def read_table(opened: Table, deep: DeepFindings) -> TablePage:
    """Read a table: manifests, base version, indexes, ledger, and what is garbage, for which every object is listed.

    What a deep look has found before is added.

    Raises:
        MemwalError: The table cannot be read.
    """
    garbage, garbage_error = _garbage(opened)
    health = examine(opened.opened, deep=False, garbage=garbage).including(deep.found)
    runs, gaps = _runs(opened)
    record = health.seen.record
    page = TablePage(
        health,
        runs=runs,
        freezes=record.freezes if record is not None else (),
        garbage=garbage,
        garbage_error=garbage_error,
        gaps=gaps,
        examined_at=deep.seen_at,
    )
    try:
        return _with_regions(opened, page)
    except MemwalError as error:
        return replace(page, error=error)


def _with_regions(opened: Table, page: TablePage) -> TablePage:
    health = page.health
    status = health.status if health.status is not None else opened.status()
    catchup = opened.run(CatchupRequest(dry_run=True)).plan
    snapshot = opened.run(SnapshotRequest(dry_run=True)).plan
    covered = opened.base.state().require_details().index_catchup
    regions = [
        RegionPage(
            standing,
            {
                index.name: standing.merged_generation - covered.get(index.name, {}).get(standing.region_id, 0)
                for index in catchup.indexes
                if not index.vectors_missing
            },
            health.of_region(standing.region_id),
            draw_timeline(standing.generations, standing.quarantined_generations),
        )
        for standing in status.regions
    ]
    regions.sort(key=lambda region: (region.health.score, -region.standing.merge_lag_generations))
    return replace(
        page,
        regions=tuple(regions),
        catchup=catchup,
        snapshot_reason=snapshot.reason.value,
        quality=_quality(opened),
    )


def _runs(opened: Table) -> tuple[tuple[RunRecord, ...], tuple[str, ...]]:
    """Return the remembered runs, the newest last, and which histories cannot be read."""
    found, unreadable = opened.opened.ledger.histories()
    return tuple(runs_in(found)), tuple(f"{error.what} ({key})" for key, error in unreadable.items())


def _quality(opened: Table) -> QualityView:
    checked = QualityTable(opened.base, opened.opened.manifests, opened.opened.settings)
    now = opened.base.clock.now()
    before, after = (show_stage(stage, checked.newest(stage), now) for stage in (Stage.BEFORE, Stage.AFTER))
    return QualityView(before, after, checked.quarantine.load())


def _garbage(opened: Table) -> tuple[GcPlan | None, str]:
    try:
        return opened.run(GcRequest(dry_run=True)).plan, ""
    except MemwalError as error:
        return None, error.what
