"""Reading what the page shows of one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memwal_core.coordination.ledger import RunRecord
from memwal_core.errors import MemwalError
from memwal_core.jobs.catchup.plan import CatchupPlan
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.health import Health, examine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.observe.signals import Signal
from memwal_core.observe.status import RegionStanding, TableStatus
from memwal_core.quality.model import Stage
from memwal_core.quality.table import QualityTable
from memwal_core.registry import RegisteredTable
from memwal_core.table import Table
from memwal_core.web.checks import QualityView, show_stage
from memwal_core.web.timeline import Stretch, draw_timeline

SHOWN_RUNS = 25


@dataclass(frozen=True, slots=True)
class RegionPage:
    """One region.

    Attributes:
        standing: What its manifest and the base table say.
        index_lag: Index -> generations behind the merge.
        health: What was found and measured on it.
        timeline: Its generations.
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
    """One table; with an error instead of the rest if it cannot be read.

    Attributes:
        table: Its entry in the registry.
        error: Why it cannot be read; empty if it can.
        health: What was found and measured; None if nothing could be.
        regions: Worst first.
        catchup: Where the indexes stand.
        snapshot_reason: Whether the region snapshot is up to date, and why not.
        runs: Recent runs of all jobs, the newest first.
        quality: Newest results of the checks, and what they hold back; None if the table cannot be read.
        garbage: What a collection would do; None on the overview.
        garbage_error: Why that is not known.
    """

    table: RegisteredTable
    error: str = ""
    health: Health | None = None
    regions: tuple[RegionPage, ...] = ()
    catchup: CatchupPlan | None = None
    snapshot_reason: str = ""
    runs: tuple[RunRecord, ...] = ()
    quality: QualityView | None = None
    garbage: GcPlan | None = None
    garbage_error: str = ""

    @property
    def status(self) -> TableStatus | None:
        """Its state; None if it cannot be read."""
        return self.health.status if self.health is not None else None

    @property
    def snapshot_age_s(self) -> float | None:
        """Age of the region snapshot; None if there is none."""
        signals = self.health.signals if self.health is not None else ()
        found = next((each.reading for each in signals if each.signal is Signal.SNAPSHOT_AGE), None)
        return float(str(found.evidence["age_s"])) if found is not None else None

    @property
    def score(self) -> int:
        """The score to sort by; a table that cannot be read comes before all others."""
        return self.health.score if self.health is not None else -1


def read_table(opened: Table, table: RegisteredTable, *, with_garbage: bool) -> TablePage:
    """Read a table: manifests, base version, indexes, ledger, and on request what is garbage.

    Args:
        opened: The table; nothing is changed.
        table: Its entry.
        with_garbage: Plan a garbage collection, too, which lists every object.

    Raises:
        MemwalError: The table cannot be read.
    """
    garbage, garbage_error = _garbage(opened) if with_garbage else (None, "")
    health = examine(opened.opened, deep=False, garbage=garbage)
    try:
        view = _readable(opened, table, health)
    except MemwalError as error:
        return TablePage(table, error=str(error), health=health)
    return replace(view, garbage=garbage, garbage_error=garbage_error)


def _readable(opened: Table, table: RegisteredTable, health: Health) -> TablePage:
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
    return TablePage(
        table=table,
        health=health,
        regions=tuple(regions),
        catchup=catchup,
        snapshot_reason=snapshot.reason.value,
        runs=tuple(reversed(opened.opened.ledger.runs()[-SHOWN_RUNS:])),
        quality=_quality(opened),
    )


def unreadable(table: RegisteredTable, error: MemwalError) -> TablePage:
    """Return what is shown of a table that cannot be read."""
    return TablePage(table, error=str(error))


def _quality(opened: Table) -> QualityView:
    checked = QualityTable(opened.base, opened.opened.manifests, opened.opened.settings)
    now = opened.base.clock.now()
    before, after = (show_stage(stage, checked.newest(stage), now) for stage in (Stage.BEFORE, Stage.AFTER))
    return QualityView(before, after, checked.quarantine.load())


def _garbage(opened: Table) -> tuple[GcPlan | None, str]:
    try:
        return opened.run(GcRequest(dry_run=True)).plan, ""
    except MemwalError as error:
        return None, str(error)
