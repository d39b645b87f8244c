"""Run the MemWAL index builder: read the regions, raise their hints, publish a snapshot."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from memwal_core.base_table import SnapshotOvertakenError, TableState, publish_snapshot
from memwal_core.errors import ConflictError, MemwalError
from memwal_core.failpoints import Failpoint
from memwal_core.format.memwal_index.snapshot import build_snapshot
from memwal_core.format.paths import wal_directory
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.snapshot.plan import SnapshotPlan, SnapshotReason, SnapshotSurvey, is_same_snapshot, plan_snapshot
from memwal_core.jobs.snapshot.report import SnapshotReport
from memwal_core.jobs.snapshot.survey import survey_regions
from memwal_core.metrics import (
    SNAPSHOT_CONFLICTS,
    SNAPSHOT_HINTS,
    SNAPSHOT_REGIONS,
    TABLE_LABEL,
    Instruments,
)
from memwal_core.region import RegionManifest, raise_wal_hint
from memwal_core.storage.concurrent import map_concurrently

_log = logging.getLogger(__name__)

SNAPSHOT_SURVEYED = Failpoint("snapshot.surveyed")
SNAPSHOT_BUILT = Failpoint("snapshot.built")
SNAPSHOT_PUBLISHED = Failpoint("snapshot.published")


def build_region_snapshot(
    context: JobContext, sharing: Sharing | None = None, *, force: bool = False, dry_run: bool = False
) -> SnapshotReport:
    """Publish a snapshot of all regions if there is anything new in it.

    Only the snapshot's own fields of the MemWAL index change, and only by a strict commit, which derives
    everything else from the version that it replaces: a merge that commits meanwhile keeps its progress.
    Snapshot files of other versions stay; they go with those versions.

    A ``CorruptionError`` means that a region cannot be read, and the present snapshot stays. After a
    ``CommitUnknownError``, build again: if the snapshot landed, that only reads.
    """
    return _Build(context, sharing, force=force).run(dry_run=dry_run)


def count_snapshot(instruments: Instruments, report: SnapshotReport) -> None:
    """Count what a build did."""
    table = {TABLE_LABEL: report.table_uri}
    published = report.plan.regions if report.outcome is JobOutcome.DONE else 0
    instruments.count(SNAPSHOT_REGIONS, published, table)
    instruments.count(SNAPSHOT_HINTS, len(report.hints_raised), table)
    instruments.count(SNAPSHOT_CONFLICTS, report.overtaken, table)


class _Build:
    def __init__(self, context: JobContext, sharing: Sharing | None, *, force: bool) -> None:
        self._context = context
        self._sharing = sharing
        self._force = force
        self._began = context.clock.monotonic()
        self._version_before = 0
        self._overtaken = 0
        self._raised_hints: dict[RegionId, int] = {}
        self._failed: set[RegionId] = set()

    def run(self, *, dry_run: bool) -> SnapshotReport:
        attempts = self._context.settings.index.max_attempts
        while True:
            survey, state, plan = self._plan()
            if dry_run:
                outcome = JobOutcome.PLANNED if plan.is_due else JobOutcome.NOTHING_TO_DO
                return self._report(plan, outcome, state.version)
            if not plan.is_due:
                return self._report(plan, JobOutcome.NOTHING_TO_DO, state.version)
            try:
                return self._carry_out(survey, state, plan)
            except SnapshotOvertakenError as error:
                self._overtaken += 1
                _log.info("another snapshot was first, retrying [table=%s]", plan.table_uri)
                if self._overtaken >= attempts:
                    return self._report(plan, JobOutcome.CONFLICT, state.version, str(error))
            except ConflictError as error:
                return self._report(plan, JobOutcome.CONFLICT, state.version, str(error))

    def _plan(self) -> tuple[SnapshotSurvey, TableState, SnapshotPlan]:
        context = self._context
        concurrency = context.settings.storage.concurrency
        survey, state = survey_regions(context.base, context.manifests, context.clock, concurrency, self._sharing)
        plan = plan_snapshot(survey, context.settings.index, force=self._force)
        self._version_before = self._version_before or state.version
        context.failpoints.hit(SNAPSHOT_SURVEYED)
        return survey, state, plan

    def _carry_out(self, survey: SnapshotSurvey, state: TableState, plan: SnapshotPlan) -> SnapshotReport:
        manifests = self._raise_hints(survey, plan)
        snapshot = build_snapshot(manifests, survey.specs)
        hints_only = plan.reason is SnapshotReason.CHANGED and not plan.changed
        if hints_only and is_same_snapshot(snapshot, survey.stored):
            # Only WAL entries were new, and no manifest could record them.
            return self._report(plan, JobOutcome.NOTHING_TO_DO, state.version)
        self._context.failpoints.hit(SNAPSHOT_BUILT)
        self._context.guard()
        published = publish_snapshot(self._context.base, snapshot, taken=survey.claimed, read=state)
        self._context.base.note(published)
        self._context.failpoints.hit(SNAPSHOT_PUBLISHED)
        _log.info(
            "region snapshot published [table=%s, version=%d, regions=%d, inline=%s]",
            plan.table_uri,
            published.version,
            len(manifests),
            plan.is_inline,
        )
        return self._report(plan, JobOutcome.DONE, published.version)

    def _raise_hints(self, survey: SnapshotSurvey, plan: SnapshotPlan) -> Sequence[RegionManifest]:
        """Return the manifests after their hints were raised, as far as that succeeded."""
        if plan.hints:
            self._context.guard()
        before = [region.manifest for region in survey.regions]
        after = map_concurrently(
            lambda manifest: self._raised(manifest, plan.hints.get(manifest.region_id)),
            before,
            self._context.settings.storage.concurrency,
        )
        for manifest in after:
            wal_id = plan.hints.get(manifest.region_id)
            if wal_id is not None and manifest.wal_id_last_seen >= wal_id:
                self._raised_hints[manifest.region_id] = manifest.wal_id_last_seen
            elif wal_id is not None:
                self._failed.add(manifest.region_id)
        return after

    def _raised(self, manifest: RegionManifest, wal_id: int | None) -> RegionManifest:
        if wal_id is None:
            return manifest
        try:
            # An entry that was seen may not be on disk yet, and its hint must not outlive it in a power failure.
            self._context.base.store.sync_directory(wal_directory(manifest.region_id))
            return self._context.manifests.update(manifest.region_id, lambda stored: raise_wal_hint(stored, wal_id))
        except MemwalError as error:
            # A hint only saves readers some requests; a reader that needs the true end probes for it.
            _log.warning("WAL hint not raised [region_id=%s, wal_id=%d]: %s", manifest.region_id, wal_id, error)
            return manifest

    def _report(self, plan: SnapshotPlan, outcome: JobOutcome, version: int, reason: str = "") -> SnapshotReport:
        if plan.parked and outcome in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}:
            outcome = JobOutcome.PARTIAL
        return SnapshotReport(
            table_uri=plan.table_uri,
            outcome=outcome,
            version_before=self._version_before,
            version_after=version,
            hints_raised=dict(self._raised_hints),
            hints_failed=tuple(sorted(self._failed - self._raised_hints.keys())),
            overtaken=self._overtaken,
            plan=plan,
            seconds=self._context.clock.monotonic() - self._began,
            reason=reason,
            place=self._sharing.place if self._sharing is not None else None,
        )
